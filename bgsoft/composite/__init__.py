"""Composite stage: replaces a frame's background, in place, plane by plane."""
