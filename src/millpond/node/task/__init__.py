"""A task from its start to its end: its supervisor, files, input and output, limits."""
