"""Machines that come to a cluster, leave it, or are exchanged, while the others go on working."""
