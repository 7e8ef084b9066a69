"""Gangs whose size may change: their bounds, growth into free room, and resizes on request."""
