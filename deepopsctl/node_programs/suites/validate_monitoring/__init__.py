"""The suite `validate monitoring`: does monitoring see the cluster, and do alerts and logs arrive."""
