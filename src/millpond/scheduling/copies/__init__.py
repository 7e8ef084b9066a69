"""Second schedulers: written down and restored, or forked."""
