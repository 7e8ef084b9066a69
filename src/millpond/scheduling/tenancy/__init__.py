"""Who gets how much: the queue tree, its usage, and fairness between queues and users."""
