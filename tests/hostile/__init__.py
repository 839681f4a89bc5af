"""Hostile input: cases made from seeds, run by the command line, and judged from outside.

``scripts/fuzz_inputs.py`` runs thousands of them; ``tests/contract/test_hostile.py`` a few.
"""
