"""How the devices fare, and what each job makes of its part of them."""
