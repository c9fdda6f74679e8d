"""Age-based purge of a scratch folder: runs on a node, on Python's own library alone (3.9 or later)."""
