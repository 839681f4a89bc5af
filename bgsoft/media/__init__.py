"""Containers: probing, muxing, copied tracks, atomic output."""
