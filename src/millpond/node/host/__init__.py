"""The machine itself: processes, control groups, accounts, files, devices as nodes of the pool."""
