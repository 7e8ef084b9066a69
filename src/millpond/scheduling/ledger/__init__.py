"""What is free and who holds what; how a trial is taken back."""
