"""What readers see: nodes, queues, histories, logs, usage and metrics, each as far as the reader may."""
