"""The scheduler's thread: its loop and inbox, what it makes durable together, and recovery after a restart."""
