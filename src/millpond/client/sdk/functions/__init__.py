"""Python functions as jobs."""
