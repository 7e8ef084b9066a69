"""What the API can be asked about jobs: each file is one topic, and routes of that topic call its class."""
