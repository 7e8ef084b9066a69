"""What sharing a card costs and keeps to, measured on a card: fourteen measurements, run by ``run.py``."""
