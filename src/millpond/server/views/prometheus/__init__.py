"""What a Prometheus reads of the server: counts, machines and cards, energy and forecasts."""
