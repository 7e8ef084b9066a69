"""Commands that show jobs and what they wrote."""
