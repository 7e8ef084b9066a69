"""What remembers and answers: the store, the scheduler's thread, and the REST API."""
