"""What was used, how long jobs waited, and the history as a trace."""
