"""Runs inside JupyterHub, with the packages of its environment: all else of `web` needs Python alone."""
