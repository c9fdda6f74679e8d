"""Containers in jobs: made from a local tree, started on several nodes at once, confined, and removed with the job."""
