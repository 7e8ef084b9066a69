"""Commands that work inside jobs."""
