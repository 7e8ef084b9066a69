"""Why a job waits, what would help, and when it starts: reasons with numbers, remedies that were tried, estimates."""
