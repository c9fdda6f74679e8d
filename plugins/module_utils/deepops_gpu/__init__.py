"""The GPU suite on the submit host; jobs, placement and verdicts are those of deepops_smoke."""
