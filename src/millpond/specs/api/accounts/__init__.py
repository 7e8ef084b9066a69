"""Bodies about people: their accounts, tokens, sign-on and SSH keys."""
