"""Passwordless SSH: the cluster's key on every node, pinned host keys, a client configuration for users."""
