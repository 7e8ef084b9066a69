"""The HTTP server: connections, TLS, proxies in front, headers, error responses, and requests of its own."""
