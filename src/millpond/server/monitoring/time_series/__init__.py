"""The pool's own short history, so that charts need no Prometheus: sampled, down-sampled, kept within bounds, read."""
