"""The commands of ``pond``, one file each, imported when the command is used."""
