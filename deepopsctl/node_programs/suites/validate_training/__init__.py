"""Distributed training through Slurm: the examples for users on each node alone and on all together."""
