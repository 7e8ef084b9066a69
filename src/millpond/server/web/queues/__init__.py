"""The pages about queues, and the form that edits one."""
