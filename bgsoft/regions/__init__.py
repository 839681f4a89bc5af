"""Regions that the user names: hidden, always person or never person."""
