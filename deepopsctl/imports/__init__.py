"""Foreign inputs (node lists, DeepOps inventories, slurm.conf) as a cluster."""
