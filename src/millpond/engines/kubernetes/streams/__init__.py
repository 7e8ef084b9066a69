"""Streams into pods: commands, ports, standard input."""
