"""Frozen dataclasses: the cluster, its GPUs, policy and storage. Data without logic."""
