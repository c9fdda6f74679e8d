"""Slurm: its configuration, what a change of it takes effect by, and the state of a cluster that runs."""
