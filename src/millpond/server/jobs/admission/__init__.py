"""Taking jobs on: what is checked before a job is the scheduler's, and what would become of it."""
