"""The command line ``pond``: one file per command, loaded when it is used."""
