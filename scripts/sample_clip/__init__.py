"""Parts of the sample clip's generator; run ``scripts/make_sample.py``."""
