"""Services: which of their jobs gets a request, who waits for a replica, and how one revision replaces another."""
