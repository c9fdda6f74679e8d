"""Jobs that validation suites send through Slurm: sessions, placement, the probe. Each suite has its copy."""
