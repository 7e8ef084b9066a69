"""Carries decisions out on a Kubernetes cluster."""
