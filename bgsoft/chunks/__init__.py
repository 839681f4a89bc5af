"""Long videos in chunks, which are rendered in parallel processes and then joined."""
