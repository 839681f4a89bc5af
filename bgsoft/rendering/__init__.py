"""One render, from settings to report."""
