"""Questions about what would be, answered on a copy of the core in a child process."""
