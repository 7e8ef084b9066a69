"""The agent of one node of a cluster: its cards, handed out by UUID and in parts."""
