"""Accelerators of this machine, one file per vendor behind one interface."""
