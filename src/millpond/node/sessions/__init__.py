"""Commands, ports and files of a running task, for users who enter it."""
