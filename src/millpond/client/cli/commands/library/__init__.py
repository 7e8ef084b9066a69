"""Commands about datasets, images, templates and secrets."""
