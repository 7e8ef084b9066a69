"""Authentication and rights: accounts, roles, secrets, the guard of the routes, and the audit log."""
