"""The configuration files that a controller is given, each an option of the modules that install them."""

from __future__ import annotations

import os

# without the latter slurmctld does not start where slurm.conf calls for their plugins
ALWAYS, WHERE_GIVEN = ("slurm", "gres", "cgroup"), ("job_container", "topology")
OPTIONS = {
    "folder": {"type": "path", "default": "/etc/slurm"},
    **{"%s_conf" % name: {"required": True} for name in ALWAYS},
    **{"%s_conf" % name: {"default": ""} for name in WHERE_GIVEN},
}


def path_of(given, name):
    """Where a configuration file lives."""
    return os.path.join(given["folder"], "%s.conf" % name)


def files_of(given):
    """{path: text} of the files that are wanted."""
    names = (*ALWAYS, *(name for name in WHERE_GIVEN if given["%s_conf" % name]))
    return {path_of(given, name): given["%s_conf" % name] for name in names}
