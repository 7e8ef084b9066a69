"""The cluster: how it is reached, followed, and changed."""
