"""What a server keeps, a module for each subject: its requests as Python methods."""
