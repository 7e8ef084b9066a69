"""Commands about users, groups, tokens, keys and the audit log."""
