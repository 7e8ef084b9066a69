"""Commands that run and maintain a server on this machine."""
