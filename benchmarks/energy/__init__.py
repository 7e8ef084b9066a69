"""What part of energy and CO2 is saved."""
