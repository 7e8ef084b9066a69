"""Guarantees as cells: equal hardware as trees, what of it is owed to whom, and where a gang goes in that."""
