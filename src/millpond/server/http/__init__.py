"""The HTTP server: connections, TLS, proxies in front, origins and headers, error responses, requests of its own."""
