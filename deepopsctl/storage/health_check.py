"""Slurm's HealthCheckProgram: which nodes get deepops-nodecheck, its configuration, and a site's own program. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from deepopsctl.model.storage import Mount, NodeFile
from deepopsctl.node_programs._shared.own_programs import HEALTH_CHECK
from deepopsctl.storage import systemd_units
from deepopsctl.storage.node_plan import required_on

PROGRAM = HEALTH_CHECK
CONFIG = "/etc/deepopsctl/nodecheck.json"
PROGRAM_KEY, INTERVAL_KEY = "HealthCheckProgram", "HealthCheckInterval"
# seconds in which a node that lost its storage may still get jobs
INTERVAL_S = 60


def with_health_check(config: Mapping[str, object], mounts: Iterable[Mount]) -> dict[str, object]:
    """A site's `slurm_config` with deepops-nodecheck if storage is required; it calls the site's own program."""
    if not any(mount.required for mount in mounts):
        return dict(config)
    merged = {key: value for key, value in config.items() if key.lower() != PROGRAM_KEY.lower()}
    merged[PROGRAM_KEY] = PROGRAM
    if not _value(config, INTERVAL_KEY):
        merged = {key: value for key, value in merged.items() if key.lower() != INTERVAL_KEY.lower()}
        merged[INTERVAL_KEY] = INTERVAL_S
    return merged


def node_files(mounts: Iterable[Mount], host: str, config: Mapping[str, object], program: str) -> tuple[NodeFile, ...]:
    """What a compute node has of it; all of them have the program, for slurm.conf names it once for all."""
    mounts = tuple(mounts)
    if not any(mount.required for mount in mounts):
        return ()
    required = required_on(mounts, host)
    wanted = [{"name": m.name, "path": m.path, "unit": systemd_units.unit_name(m.path)} for m in required]
    own = str(_value(config, PROGRAM_KEY) or "")
    text = json.dumps({"node": host, "mounts": wanted, "program": own}, indent=1) + "\n"
    files = [NodeFile(PROGRAM, program, "0755"), NodeFile(CONFIG, text)]
    if required:
        files.append(NodeFile(systemd_units.SLURMD_DROP_IN, systemd_units.slurmd_drop_in(required)))
    return tuple(files)


def _value(config: Mapping[str, object], wanted: str) -> object:
    """A key of slurm.conf, whatever its case."""
    return next((value for key, value in config.items() if key.lower() == wanted.lower()), None)
