"""The engine for one machine: every task is a real process tree on it."""
