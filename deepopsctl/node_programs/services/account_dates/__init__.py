"""Opens and closes Slurm accounts when their days come, between deploys; on Python's own library alone."""
