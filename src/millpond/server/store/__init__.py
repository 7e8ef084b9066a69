"""The server's memory: the event log, snapshots, decisions and jobs, in SQLite or PostgreSQL."""
