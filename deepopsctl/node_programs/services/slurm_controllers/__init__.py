"""Controllers that share Slurm's state: which of them is in control, a guard on each, and a test of what they share."""
