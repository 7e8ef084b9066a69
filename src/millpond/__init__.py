"""Millpond: one calm pool out of a team's GPU machines."""
