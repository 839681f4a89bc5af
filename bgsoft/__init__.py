"""bgsoft: softens, replaces or cuts out the background behind people in videos."""

__version__ = "0.1.0"
