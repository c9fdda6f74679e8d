"""What monitoring has seen of a job: one question to Prometheus for each."""

from __future__ import annotations

import base64
import http.client
import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, Callable

from .summary import GpuUse, NodeUse, Summary

LIMIT_S = 20
_MOST_BYTES = 8 << 20
# What runs a query at a time and returns its series; tests have their own
Query = Callable[[str, int], list[dict[str, Any]]]
# What asks one of Prometheus' paths
Ask = Callable[[str, Mapping[str, "str | int"]], "list[dict[str, Any]]"]

# by the name that each gets in the answer; {job} is a matcher, {window} the job's time
_NODES = {
    "cores": "max by (node) (max_over_time(deepops_job_cpu_seconds_total{job}[{window}])) / {seconds}",
    "memory": "max by (node) (max_over_time(deepops_job_memory_peak_bytes{job}[{window}]))",
}
_GPUS = {
    "use": "max by (node, gpu) (avg_over_time(job:gpu_utilization:ratio{job}[{window}]))",
    "most": "max by (node, gpu) (max_over_time(job:gpu_utilization:ratio{job}[{window}]))",
    "gpu_memory": "max by (node, gpu) (max_over_time(job:gpu_memory_used:bytes{job}[{window}]))",
    "gpu_total": "max by (node, gpu) (max_over_time(job:gpu_memory_total:bytes{job}[{window}]))",
}


class PrometheusError(Exception):
    """Prometheus does not answer; the message has the reason."""


def summarise(number: str, end: int, elapsed: int, query: Query) -> Summary:
    """What there is of a job that ended then; an empty summary where nothing was seen."""
    parameters = {"job": '{jobid="' + number + '"}', "window": f"{elapsed}s", "seconds": elapsed}
    parts = (
        f'label_replace({text.format(**parameters)}, "figure", "{name}", "", "")'
        for name, text in {**_NODES, **_GPUS}.items()
    )
    return _summary(_figures(query(" or ".join(parts), end)))


def _figures(series: list[dict[str, Any]]) -> Iterator[tuple[str, tuple[str, str], float]]:
    for each in series:
        labels: Mapping[str, str] = each.get("metric", {})
        value = float(each["value"][1])
        if math.isfinite(value) and value >= 0:
            yield labels.get("figure", ""), (labels.get("node", ""), labels.get("gpu", "")), value


def _summary(figures: Iterator[tuple[str, tuple[str, str], float]]) -> Summary:
    nodes: dict[str, dict[str, float]] = {}
    gpus: dict[tuple[str, str], dict[str, float]] = {}
    for figure, key, value in figures:
        if figure in _NODES:
            nodes.setdefault(key[0], {})[figure] = value
        elif figure in _GPUS:
            gpus.setdefault(key, {})[figure] = value
    return Summary(
        tuple(NodeUse(node, usage.get("cores"), usage.get("memory")) for node, usage in sorted(nodes.items())),
        tuple(
            GpuUse(*key, usage.get("use"), usage.get("most"), usage.get("gpu_memory"), usage.get("gpu_total"))
            for key, usage in sorted(gpus.items())
        ),
    )


def querying(url: str, user: str, password: str) -> Query:
    """Questions to a Prometheus about one moment."""
    ask = asking(url, user, password)
    return lambda text, at: ask("query", {"query": text, "time": at})


def asking(url: str, user: str, password: str) -> Ask:
    """Questions of any kind to a Prometheus: `query`, `query_range`."""
    login = base64.b64encode(f"{user}:{password}".encode()).decode()

    def ask(kind: str, parameters: Mapping[str, str | int]) -> list[dict[str, Any]]:
        # the address is deploy's
        asked = urllib.request.Request(  # noqa: S310 - the URL is from the program's own settings
            f"{url.rstrip('/')}/api/v1/{kind}", data=urllib.parse.urlencode(parameters).encode()
        )
        asked.add_header("Authorization", "Basic " + login)
        try:
            with _opener().open(asked, timeout=LIMIT_S) as answer:
                document = json.loads(answer.read(_MOST_BYTES))
            result: list[dict[str, Any]] = document["data"]["result"]
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            raise PrometheusError(f"{url}: {error}") from error
        return result

    return ask


def _opener() -> urllib.request.OpenerDirector:
    # ignore proxies of root's environment: the server is a node of the cluster
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))
