"""Notifying other programs of what happens to jobs: signed, retried, and written down."""
