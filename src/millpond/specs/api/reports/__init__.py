"""Bodies about what was used, what was measured over time, and what would have been."""
