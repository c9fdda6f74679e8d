"""The cluster's own certificate authority, and the validity of certificates."""
