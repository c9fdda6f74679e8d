"""Throw-away clusters of systemd containers on this machine, driven through podman's command line."""
