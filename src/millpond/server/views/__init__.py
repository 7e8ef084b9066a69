"""What readers see: jobs, nodes, queues, reasons, histories and logs, each as far as the reader may."""
