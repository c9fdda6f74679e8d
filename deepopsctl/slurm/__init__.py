"""Slurm: configuration, how changes take effect, and the state of a running cluster."""
