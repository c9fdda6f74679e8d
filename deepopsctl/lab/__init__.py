"""Disposable clusters of systemd containers on this machine, run with podman's command line."""
