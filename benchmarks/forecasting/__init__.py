"""How good forecasts are, and what follows them."""
