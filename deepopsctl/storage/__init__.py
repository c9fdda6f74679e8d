"""Storage of a cluster: what is mounted where, who serves it, and what a node needs for it."""
