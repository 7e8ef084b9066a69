"""Power caps of the cards of jobs that recur and may take a little longer."""
