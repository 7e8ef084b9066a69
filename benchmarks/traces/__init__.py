"""How good decisions are on traces, beside published figures."""
