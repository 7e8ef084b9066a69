"""Jobs that stand for pods of others on Kubernetes: submitted, answered, given up."""
