"""This terminal: its size, its input, Ctrl-C."""
