"""A site's own checks: executables of the cluster directory, run on nodes or in a job on each compute node."""
