"""Set aside a Slurm that was built from source below a prefix such as /usr/local, put it back, or remove it."""
