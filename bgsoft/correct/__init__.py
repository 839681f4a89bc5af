"""A page on which the user corrects a render: frames, timeline, and regions drawn by hand."""
