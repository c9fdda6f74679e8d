"""Metrics that a node knows of itself, as text files for node exporter. Runs on nodes: Python 3.9, no packages."""

CONFIG = "/etc/deepopsctl/nodemetrics.json"
