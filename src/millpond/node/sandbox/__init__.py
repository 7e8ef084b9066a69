"""Keeping tasks apart: namespaces, mounts and networks of their own."""
