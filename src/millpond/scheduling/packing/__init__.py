"""Jobs that share cards where that was measured to pay."""
