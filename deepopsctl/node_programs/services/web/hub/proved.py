"""A name that was proved otherwise than by what a browser sends."""

from __future__ import annotations


class Proved(dict[str, str]):
    """What JupyterHub's login gets for it: forms are plain dictionaries, and can't be this."""
