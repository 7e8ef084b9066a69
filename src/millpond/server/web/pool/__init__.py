"""The pages about hardware: the map of the pool, nodes and their cards, cells, reservations."""
