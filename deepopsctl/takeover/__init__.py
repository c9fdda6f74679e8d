"""Adopting an existing Slurm installation: facts, preflight checks, and what is kept."""
