"""Queues as the configuration file and requests define them, and how they reach the scheduler."""
