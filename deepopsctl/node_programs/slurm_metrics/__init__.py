"""`deepops-slurmmetrics`: what Slurm says of nodes, jobs and itself, as metrics. Python 3.9 and its own library."""
