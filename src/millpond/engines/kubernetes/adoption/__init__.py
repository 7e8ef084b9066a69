"""Pods that others made and that name Millpond as their scheduler: found, grouped, bound, followed, answered."""
