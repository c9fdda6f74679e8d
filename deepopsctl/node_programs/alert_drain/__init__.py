"""`deepops-alertdrain`: takes nodes out of Slurm's service while an alert says so; Python's own library alone (3.9)."""
