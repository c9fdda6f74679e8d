"""`diskusage_report`: what a user has on each file system; on Python's own library alone (3.9 or later)."""
