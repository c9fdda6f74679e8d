"""Claim the cluster for a run, or release it: on the first controller, so that one control machine works at a time."""
