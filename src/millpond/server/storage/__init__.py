"""Files of users and jobs, and what jobs need on a machine before they start."""
