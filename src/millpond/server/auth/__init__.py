"""Authentication and rights: accounts, roles, secrets, isolation of users, the guard of the routes, the audit log."""
