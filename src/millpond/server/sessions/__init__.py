"""Into running tasks: commands, ports and SSH."""
