"""Commands that replay traces."""
