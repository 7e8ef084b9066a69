"""What is measured: requests, jobs and cycles as they happen, figures of devices, power."""
