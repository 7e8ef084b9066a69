"""Whether queues and users get what they should, and whether evictions end."""
