"""The choice among policies that a server makes by replays of its own past."""
