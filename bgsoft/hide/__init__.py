"""Places of frames made unrecognisable: faces, and what the user names."""
