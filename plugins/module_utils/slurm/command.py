"""Commands, where `client.py` has them next to itself on nodes as well (`deepopsctl/node_programs/_shared/`)."""

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.command import (
    MISSING,
    Result,
    run,
    slurm_environment,
)

__all__ = ["MISSING", "Result", "run", "slurm_environment"]
