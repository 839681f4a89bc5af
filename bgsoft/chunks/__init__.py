"""Long videos in parts: planned, rendered side by side in other processes, and joined."""
