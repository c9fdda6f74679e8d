"""`deepops-slurmmetrics`: metrics of Slurm's nodes, jobs and daemons. Python 3.9 and its standard library."""

CONFIG = "/etc/deepopsctl/slurmmetrics.json"
