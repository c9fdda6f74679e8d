"""Keys of slurmdbd.conf and cgroup.conf that a site sets: `slurm_dbd_config`, `slurm_cgroup_config`.

Sources: slurmdbd.conf(5), cgroup.conf(5) of Slurm 22.05 to 26.05.
"""

from __future__ import annotations

from collections.abc import Mapping

# what follows from cluster.yml, the vault and other settings, by setting: key in lower case -> what to do instead
OWNED: Mapping[str, Mapping[str, str]] = {
    "slurm_dbd_config": {
        **dict.fromkeys(("dbdhost", "dbdaddr", "dbdbackuphost"), "give a node the role dbd in cluster.yml"),
        "dbdport": "set AccountingStoragePort in slurm_config",
        **dict.fromkeys(
            ("storagehost", "storagebackuphost", "storageport", "storageparameters"), "see slurm_dbd_server"
        ),
        "storagetype": "MariaDB or MySQL is the only choice",
        "storageloc": "set slurm_dbd_database", "storageuser": "set slurm_dbd_user",
        "storagepass": "slurm_dbd_password is in the vault", "storagepassscript": "slurm_dbd_password is in the vault",
        "slurmuser": "the package decides it", "pidfile": "the package's unit decides it",
        "plugindir": "the package decides it", "authtype": "munge is the only choice so far",
    },
    "slurm_cgroup_config": {
        **dict.fromkeys(
            ("constraincores", "constraindevices", "constrainramspace", "constrainswapspace"), "see slurm_confinement"
        ),
        "cgroupplugin": "it follows from the nodes",
        # no release since 22.05 needs these, and some do not start with them
        **dict.fromkeys(
            ("cgroupautomount", "cgroupmountpoint", "cgroupreleaseagentdir", "taskaffinity", "alloweddevicesfile",
             "constrainkmemspace", "allowedkmemspace", "maxkmempercent", "minkmemspace"),
            "newer releases of Slurm do not have it",
        ),
    },
}  # fmt: skip
# what deepopsctl's cgroup.conf has where nodes have control groups
CONFINED = frozenset({"constraincores", "constraindevices", "constrainramspace", "constrainswapspace"})


def refused_keys(settings: Mapping[str, Mapping[str, object] | None]) -> list[str]:
    """Messages for the keys of these settings that a site can't set."""
    return [
        f"{name}: {key} is set by deepopsctl: {OWNED[name][key.lower()]}"
        for name, values in settings.items()
        for key in values or {}
        if key.lower() in OWNED[name]
    ]


def split(name: str, values: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """What can be kept of a file for this setting, and what can't."""
    kept = {key: value for key, value in values.items() if key.lower() not in OWNED[name]}
    return kept, {key: value for key, value in values.items() if key not in kept}
