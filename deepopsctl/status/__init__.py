"""What the cluster is now: nodes, jobs, versions, drift and the last runs."""
