"""Accounts, QOS and priorities of cluster.yml: read, check, write."""
