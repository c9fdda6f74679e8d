"""Imports of node lists, DeepOps inventories and slurm.conf."""
