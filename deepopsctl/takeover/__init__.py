"""Nodes that run Slurm already become this cluster's: what they said, what speaks against it, what is kept."""
