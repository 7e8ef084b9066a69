"""Advance reservations: cards that a queue has from one instant to another."""
