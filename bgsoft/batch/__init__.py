"""Batches of files: which files to render, the names of outputs, the saved state, and the run."""
