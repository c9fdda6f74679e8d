"""The suite `web`: a user logs in, has files, starts a notebook, runs a cell, and stops it, by what a browser sends."""
