"""Requested and used resources of a job, from Slurm's accounting. Runs on nodes: Python 3.9, no packages."""

# of the program that stores summaries in the accounting
CONFIG = "/etc/deepopsctl/job-summaries.json"
STATE = "/var/lib/deepopsctl/job-summaries.json"
