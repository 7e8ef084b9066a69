"""How fast the scheduler decides, forks and explains."""
