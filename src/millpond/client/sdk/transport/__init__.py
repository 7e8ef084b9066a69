"""How a client finds a server, logs in, and carries requests there."""
