"""`why JOBID`: why a job waits, when it is expected, what to change to start sooner; why it failed, and what to do.

For a page: `explain(JOBID)` of `explanation` returns what `--json` prints.
"""
