"""What an operator needs around a server: a check of the machine, backups, a unit for systemd."""
