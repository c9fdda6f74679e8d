"""Units as systemd reads them."""

from __future__ import annotations


def command(dropin: str) -> list[str]:
    """What systemd makes of the unit's ExecStart: no word of these has a space."""
    line = dropin.partition("\nExecStart=\nExecStart=")[2].replace(" \\\n", " ").partition("\n")[0]
    return [word.strip('"').replace("\\\\", "\\").replace("%%", "%").replace("$$", "$") for word in line.split()]
