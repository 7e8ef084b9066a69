"""Who is next: the orderings, faithful baselines and our own, and what they learn from jobs that have ended."""
