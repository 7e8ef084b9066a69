"""What people and programs write and read: job files, configuration files, bodies of the REST API, and options."""
