"""Sweeps: what their trials reported, which of them fall behind, and the best."""
