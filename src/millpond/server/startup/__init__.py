"""How a server comes up, step by step, and goes down in the opposite order; each file is one step."""
