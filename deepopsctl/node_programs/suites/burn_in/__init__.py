"""The burn-in: loads idle nodes through Slurm with gpu_check, follows its jobs, and evaluates what they wrote."""
