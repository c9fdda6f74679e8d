"""The GPU suite on the submit host; jobs, placement and checks are those of deepops_smoke."""
