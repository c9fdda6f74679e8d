"""slurmctld's own metrics: since which release, the settings that enable them, and conflicting settings.

Source: slurm.conf(5) and the metrics guide of Slurm 26.05, and what 26.05.5 answered: 401 where PrivateData or
MetricsAuthUsers is set, an empty page without the plugin.
"""

from __future__ import annotations

from collections.abc import Mapping

from deepopsctl.slurm.conf import Version, format_value

# 25.11 has an endpoint too, but without GPUs
SINCE = (26, 5)
SETTINGS = {"MetricsType": "metrics/openmetrics"}
# not jobs-users-accts, which has a series for each state of each user
PAGES = ("jobs", "nodes", "partitions", "scheduler")
_UNKNOWN = (0, 0)


def settings(version: Version, *, wanted: bool) -> dict[str, str]:
    """Keys of slurm.conf."""
    return dict(SETTINGS) if wanted and version >= SINCE else {}


def refusal(version: Version, extra: Mapping[str, object], *, wanted: bool) -> str:
    """Why Prometheus can't read them; '' if it can, or if they are not wanted.

    A site that hides jobs of other users does not want them readable by anyone who reaches the port: the site decides,
    deepopsctl does not work around it.
    """
    if not wanted:
        return ""
    if _UNKNOWN != version < SINCE:
        return (
            f"monitoring_slurm_native: Slurm {version[0]}.{version[1]:02} has no metrics of its own with GPUs in them "
            f"({SINCE[0]}.{SINCE[1]:02} and later): leave it out, the same names come from deepops-slurmmetrics"
        )
    values = {key.lower(): format_value(value).lower() for key, value in extra.items() if value is not None}
    if values.get("metricsauthusers") and values["metricsauthusers"] != "(null)":
        return _closed("MetricsAuthUsers", "take it out of slurm_config")
    ignored = "ignore_private_data" in values.get("metricsparameters", "").split(",")
    if values.get("privatedata", "none") not in ("", "none") and not ignored:
        return _closed("PrivateData", "set MetricsParameters: ignore_private_data in slurm_config as well")
    return ""


def _closed(key: str, remedy: str) -> str:
    return (
        f"monitoring_slurm_native: with {key} slurmctld shows its metrics only with a token: leave it out, the "
        f"same names come from deepops-slurmmetrics, or {remedy}"
    )
