"""The REST API: HTTP in, ``server.api.service`` behind it, HTTP out."""
