"""What whoever runs a server needs around it: a check of the machine, backups, a unit for systemd."""
