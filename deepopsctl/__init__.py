"""deepopsctl: from a list of machines to a validated GPU Slurm cluster."""

__version__ = "0.1.0"
