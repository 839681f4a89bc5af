"""Queues, ring and threads that join the stages; nothing here knows a vendor."""
