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


def path_of(params, name):
    """Where a configuration file lives."""
    return os.path.join(params["folder"], "%s.conf" % name)


def files_of(params):
    """{path: text} of the files that are wanted."""
    names = (*ALWAYS, *(name for name in WHERE_GIVEN if params["%s_conf" % name]))
    return {path_of(params, name): params["%s_conf" % name] for name in names}
