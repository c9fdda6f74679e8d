"""Monitoring: what each node needs for it, what Prometheus scrapes, how its configuration is written. All pure."""
