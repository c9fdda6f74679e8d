"""Current state of the cluster: nodes, jobs, versions, drift and the last runs."""
