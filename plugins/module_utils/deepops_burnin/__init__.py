"""The burn-in on the submit host and on the nodes; jobs, snapshots and checks are those of deepops_smoke."""
