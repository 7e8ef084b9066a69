"""Commands about nodes, queues, devices and what happened."""
