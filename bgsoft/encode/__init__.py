"""Encode stage: frames to packets."""
