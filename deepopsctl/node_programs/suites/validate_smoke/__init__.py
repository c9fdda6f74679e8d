"""The smoke suite: does the cluster work, through Slurm, for an ordinary user? `suite` has the order of its checks."""
