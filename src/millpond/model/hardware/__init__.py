"""Nodes and devices: what they are, how they are joined, what they report and what they may draw."""
