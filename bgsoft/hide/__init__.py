"""Places of frames made unrecognisable: faces, and regions named by the user."""
