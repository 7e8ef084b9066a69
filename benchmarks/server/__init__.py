"""How fast and robust a real server is."""
