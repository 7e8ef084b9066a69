"""What people type, and the Python client under it."""
