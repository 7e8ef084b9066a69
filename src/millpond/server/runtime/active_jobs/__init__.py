"""Jobs that have not ended, beside the core: their views, arrays, and those that wait for others or for data."""
