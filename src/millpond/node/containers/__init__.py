"""Tasks in containers: what a container runtime of this machine is told, one file for each."""
