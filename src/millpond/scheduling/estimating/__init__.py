"""When a waiting job should start: the futures of a pool, played forward from what runs and waits now."""
