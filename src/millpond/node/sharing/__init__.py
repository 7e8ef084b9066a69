"""Several tasks on one device: what holds each to its part, and how one makes room for another."""
