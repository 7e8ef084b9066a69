"""How fast Millpond binds pods in a cluster of fake nodes, and what it survives there: rows, run by ``run.py``."""
