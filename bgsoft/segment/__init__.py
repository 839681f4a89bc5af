"""Segment stage: a frame's picture to the model's raw mask."""
