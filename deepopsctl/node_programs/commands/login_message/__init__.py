"""What users read when they log in: the state of the cluster and their own quotas; on Python's own library alone."""
