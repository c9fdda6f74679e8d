"""Requested and used resources of a job, from Slurm's accounting. Runs on nodes: Python 3.9, no packages."""
