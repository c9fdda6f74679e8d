"""What a job has used of what it asked for, from Slurm's accounting. Runs on nodes: Python 3.9, no packages."""
