"""What replays pretend: an engine that answers, what it charges, how fast jobs really are, what nodes hold and draw."""
