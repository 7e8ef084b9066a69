"""The way in through SSH: a gateway in a process of its own, and the authorizer that decides who may do what."""
