"""The monitoring suite, on the monitoring host. Standard library only, Python 3.8 and later."""
