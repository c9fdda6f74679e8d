"""Environments of Python packages on a node: built from a directory of wheels, removed once no process uses them."""
