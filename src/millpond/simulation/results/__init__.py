"""What came of a replay: its history, figures of merit, and their summaries."""
