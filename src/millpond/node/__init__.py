"""What one machine does: its devices, and tasks as real process trees. Knows nothing of queues or policies."""
