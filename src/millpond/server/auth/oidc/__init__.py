"""Logging in at an OpenID Connect provider: the way there and back, what it says, and whose account that opens."""
