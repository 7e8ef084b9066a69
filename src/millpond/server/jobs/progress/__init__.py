"""How fast running work makes steps, by what its programs report."""
