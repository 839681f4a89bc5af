"""Matte stage: the model's raw mask to the refined matte of a frame."""
