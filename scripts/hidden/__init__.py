"""Parts of the proof that hidden faces are hidden; run ``scripts/measure_hidden.py``."""
