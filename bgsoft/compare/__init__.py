"""Compares two videos: pictures, timestamps, sound and metadata."""
