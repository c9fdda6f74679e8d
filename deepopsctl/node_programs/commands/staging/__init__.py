"""A job's input to the node's own disk, its results back: `stage-in` and `stage-out`, which users call in jobs."""
