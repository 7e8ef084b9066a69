"""What a change would do: the same jobs played without and with it, and compared."""
