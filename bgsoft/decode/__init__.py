"""Decode stage: container to upright frames in ring slots."""
