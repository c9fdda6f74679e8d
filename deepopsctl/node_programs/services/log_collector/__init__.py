"""Collects the journals of all nodes on the log host. Runs there: Python 3.9, no packages."""
