"""What users do to jobs that they have submitted."""
