"""One cycle of the scheduler: who waits in which order, what is admitted, placed, claimed and reserved."""
