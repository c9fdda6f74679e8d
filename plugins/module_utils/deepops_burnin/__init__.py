"""The burn-in on the submit host and on the nodes; jobs, pictures and verdicts are those of deepops_smoke."""
