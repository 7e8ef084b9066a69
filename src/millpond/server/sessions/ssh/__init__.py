"""The way in through SSH: a gateway in a process of its own, and the authorizer that tells it who may do what."""
