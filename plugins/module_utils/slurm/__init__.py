"""Slurm on the node: its commands, its configuration, and what may be changed under jobs."""
