"""What happens to a cluster over the years: packages built once and served, upgrades, backups, a restore."""
