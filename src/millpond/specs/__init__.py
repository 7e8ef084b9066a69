"""What people and programs write and read: job files, configuration files, and the bodies of the REST API."""
