"""What is measured: metrics for Prometheus, figures of devices, power, and the health of the server."""
