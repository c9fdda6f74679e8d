"""What `deepopsctl validate` runs: suites through Slurm, the burn-in, and the measurement of GPUs."""
