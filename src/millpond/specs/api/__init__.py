"""The bodies of the REST API."""
