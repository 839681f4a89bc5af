"""Queues, ring and threads that join the stages, on the host and on a device."""
