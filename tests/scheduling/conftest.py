"""Makes what lies beside this file importable by the tests in the folders below, which are those of the scheduler."""
