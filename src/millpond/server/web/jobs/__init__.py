"""The pages on which jobs and sessions are written and started, and what the page of a job is made of."""
