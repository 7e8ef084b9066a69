"""Tasks in containers: the commands of a container runtime of this machine, one file for each."""
