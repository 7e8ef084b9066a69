"""The REST API: HTTP in, ``server.service`` behind it, HTTP out."""
