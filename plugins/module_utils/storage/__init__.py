"""Mounts, NFS exports and quotas on the node."""
