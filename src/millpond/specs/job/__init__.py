"""The job file: from text to the scheduler's ``Job``."""
