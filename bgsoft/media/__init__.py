"""Containers and picture files: probing, muxing, copied tracks, sequences."""
