"""What users meet on the cluster: people and their accounts, as data of the cluster directory."""
