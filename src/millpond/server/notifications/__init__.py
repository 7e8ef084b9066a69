"""What people and other programs are told of: webhooks of the configuration, and mail and chat of users."""
