"""What nvidia_info says of nodes."""

from __future__ import annotations

from typing import Any

KERNEL = "6.12.57+deb13-amd64"

HEADERS = {"installed": False, "available": True, "package": f"linux-headers-{KERNEL}", "meta": "linux-headers-amd64"}


def facts(gpus: int = 1, device: str = "0x2330", **more: object) -> dict[str, Any]:
    """What node_info says of a fresh machine with so many GPUs."""
    return {
        "gpus": [{"address": f"0000:{number:02x}:00.0", "device": device} for number in range(gpus)],
        "nvswitches": 0,
        "loaded": {"version": "", "open": False},
        "library": "",
        "kernel": KERNEL,
        "headers": HEADERS,
        "architecture": "x86_64",
        "container": False,
        "dgx": False,
        "managed": False,
        "idle": True,
        "nouveau": False,
        "run_installer": "",
        "secure_boot": False,
        "mok_enrolled": False,
        "sources": [],
        **more,
    }


def platform(distribution: str, version: str) -> dict[str, str]:
    """What Ansible gathers of a node's system."""
    major = version.partition(".")[0]
    return {"distribution": distribution, "distribution_version": version, "distribution_major_version": major}


# a task that gives a host the facts that it has in its variable `platform`
SET_PLATFORM: dict[str, Any] = {
    "name": "The platform",
    "ansible.builtin.set_fact": {
        "cacheable": True,
        **{name: f"{{{{ platform.{name} }}}}" for name in platform("", "")},
    },
}
