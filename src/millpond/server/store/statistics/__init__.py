"""Sums over time: usage, cards, waits, and the history of the pool."""
