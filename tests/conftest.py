"""Makes what lies beside this file importable by the tests of every folder."""
