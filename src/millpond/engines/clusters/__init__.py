"""One server, several clusters: which engine carries out what, and what becomes of one that is away."""
