"""Snapshots of file systems, taken every hour by root on the node that owns them, for users to restore from by `cp`."""
