"""Who is owed what: queues, their virtual clusters of cells, and reservations."""
