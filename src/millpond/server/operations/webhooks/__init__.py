"""Telling other programs what happens to jobs: signed, retried, and written down."""
