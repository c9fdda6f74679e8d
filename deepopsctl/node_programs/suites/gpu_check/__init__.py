"""Measure the GPUs of one node, without Slurm and without anything installed (`python -m` starts it).

The package runs on the nodes themselves, from Python 3.8 on, with the standard library alone: it imports nothing else
of deepopsctl, and tests/unit/test_dependency_rules.py keeps it so. `--pack` makes one file of it, to copy to a node.

Data flow: nvml + cuda -> measuring -> document (the JSON of docs/reference/gpucheck.md) -> evaluation -> checks.
"""
