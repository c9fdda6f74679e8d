"""Adding, removing, replacing, draining and resuming nodes."""
