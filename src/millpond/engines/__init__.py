"""Where decisions become processes."""
