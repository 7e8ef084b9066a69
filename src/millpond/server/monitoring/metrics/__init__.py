"""What the server exports to Prometheus about itself, its jobs and its devices."""
