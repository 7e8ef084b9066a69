"""The server's configuration file, section by section."""
