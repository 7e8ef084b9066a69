"""What the server tells a Prometheus of itself, its jobs and its devices."""
