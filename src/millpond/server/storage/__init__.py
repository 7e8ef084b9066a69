"""Files of users and jobs, what they take of the disk, and what jobs need on a machine before they start."""
