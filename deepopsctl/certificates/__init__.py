"""The cluster's own certificate authority, and how long certificates hold."""
