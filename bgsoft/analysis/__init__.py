"""The analysis grid: a frame reduced once, for segmentation, matte and background filters."""
