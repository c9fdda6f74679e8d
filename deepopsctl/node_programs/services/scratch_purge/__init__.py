"""Age-based purge of a scratch directory: runs on a node, with Python's standard library only (3.9 or later)."""
