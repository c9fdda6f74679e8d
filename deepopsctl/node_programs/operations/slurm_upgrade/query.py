"""What a node has: packages, configuration, database. It only reads."""

from __future__ import annotations

import glob
import os
import re
import shutil
from typing import Any

from ..._shared import packages_query, platform, spank
from ..slurm_backup import BackupError
from ..slurm_backup.collect import of_tables, sql
from . import DIRECTORY, record

CONFIGURATION = "/etc/slurm/slurm.conf"
PATTERNS = ("slurm*", "libslurm*", "libpam-slurm*", "libpmi0*", "libpmi2-0*", "sackd", "libnss-slurm")
# where Debian's packages and deepopsctl's have them
MODULES = (
    "/usr/lib/*/slurm-wlm/*.so",
    "/usr/lib/*/slurm/*.so",
    "/usr/lib/slurm/*.so",
    "/usr/lib/*/security/pam_slurm*.so",
)
_ANSWER_S = 60
# what an installation that was cut off leaves
_UNFINISHED = ("half-installed", "unpacked", "half-configured", "triggers-awaited")
# what may be a password stays here
_SECRET = re.compile("pass", re.IGNORECASE)
_SETTING = re.compile(r"^\s*([A-Za-z]\w*)\s*=\s*([^#\n]*?)\s*(?:#.*)?$", re.MULTILINE)


def query(*, controller: bool, database: str) -> dict[str, Any]:
    """All of it; `database` is '' where slurmdbd does not run."""
    release = platform.os_release()
    version = release["distribution_version" if release["distribution"] == "Ubuntu" else "distribution_major_version"]
    result: dict[str, Any] = {
        "platform": f"{release['distribution']} {version}",
        "installed": installed(),
        "unfinished": any(state.status in _UNFINISHED for state in packages_query.states(PATTERNS).values()),
        "free_mb": shutil.disk_usage("/var/cache").free >> 20,
        "plugins": spank.plugins(),
        "modules": modules(),
    }
    if controller:
        result["settings"] = configured()
        result["record"] = record.read()
    if database:
        result["database"] = _database(database)
    return result


def installed() -> dict[str, str]:
    """{name: version} of Slurm's packages that are installed and configured."""
    return packages_query.installed(PATTERNS)


def modules() -> list[str]:
    """The names of Slurm's own plugins, and of its modules for PAM: `mpi_pmix_v5.so`, `pam_slurm_adopt.so`."""
    return sorted({os.path.basename(path) for pattern in MODULES for path in glob.glob(pattern)})


def configured() -> dict[str, str]:
    """The settings of slurm.conf, without lines of nodes and partitions, and without passwords."""
    try:
        with open(CONFIGURATION, encoding="utf-8", errors="replace") as stream:
            text = stream.read()
    except OSError:
        return {}
    return {key: value for key, value in _SETTING.findall(text) if not _SECRET.search(key)}


def _database(name: str) -> dict[str, Any]:
    try:
        server = sql("SELECT VERSION();").strip()
        isolation = sql("SHOW GLOBAL VARIABLES LIKE 'innodb_snapshot_isolation';").split()
        size = int(of_tables("COALESCE(SUM(data_length + index_length), 0)", name))
        where = os.path.dirname(DIRECTORY)
        free = shutil.disk_usage(where if os.path.isdir(where) else "/var/lib").free
    except BackupError as error:
        return {"problem": str(error)}
    return {"server": server, "isolation": isolation[-1:] == ["ON"], "size_mb": size >> 20, "free_mb": free >> 20}
