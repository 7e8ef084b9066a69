"""Scenarios: the weeks of a cluster and its users, written down once and played under several configurations."""
