"""Job arrays: one stored object, whose members are handed to the scheduler a few at a time as ordinary jobs."""
