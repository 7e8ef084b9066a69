"""Into running tasks: commands, ports and SSH; and when each job was last used."""
