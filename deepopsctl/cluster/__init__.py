"""The cluster directory: cluster.yml, inventory, secrets, node selection."""
