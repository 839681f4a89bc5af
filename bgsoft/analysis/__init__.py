"""The analysis frame: a frame reduced once, for segmentation, matte and background filters."""
