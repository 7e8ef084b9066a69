"""Bodies about jobs: what one is, asks for, waits for, wrote and reported."""
