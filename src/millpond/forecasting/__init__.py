"""What will come, learnt from what was: how long jobs run."""
