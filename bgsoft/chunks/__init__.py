"""Long videos in chunks: planned, rendered side by side in other processes, and joined."""
