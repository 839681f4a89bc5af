"""Many files in one go: what to render, under which names, how far it is, and the run itself."""
