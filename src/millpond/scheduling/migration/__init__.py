"""Running work moves to other devices, of its own node or of others."""
