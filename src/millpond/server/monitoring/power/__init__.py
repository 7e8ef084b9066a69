"""What keeps devices to what the configuration says of their power."""
