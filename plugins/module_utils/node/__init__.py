"""A node's own state: packages, files, services, ownership, and the record of the last good deploy."""
