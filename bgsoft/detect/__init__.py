"""Things that a detector of the user finds, and that are hidden."""
