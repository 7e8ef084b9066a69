"""What is kept encrypted: secrets of jobs and webhooks, and backups. The ciphers can be exchanged."""
