"""Machines and their cards, as readers see them."""
