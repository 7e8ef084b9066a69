"""Who comes in and what they may do: accounts, roles, secrets, the door, and the audit log."""
