"""Bodies about what jobs are given: nodes, queues, cells and reservations."""
