"""Hostile input: cases made from seeds, run by the command line, and judged from outside."""
