"""The GPU suite on the control machine: evaluates the results of all nodes, saves them in the run and the history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from deepopsctl.checks.check import Check, parse_check
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.model.cluster import Cluster
from deepopsctl.node_programs.gpu_check.evaluation import evaluate
from deepopsctl.run.outcome import RunSummary
from deepopsctl.validation.gpu_history import earlier_results, save_results
from deepopsctl.validation.result import Validation

SUITE = "gpu"
Result = Mapping[str, object]


def with_gpus(validation: Validation, cluster: Cluster, directory: ClusterDir) -> tuple[Validation, tuple[str, ...]]:
    """The validation with its GPU checks, and warnings about the stored history."""
    results = results_of(validation.outcome.summary)
    if not results:
        return validation, ()
    earlier = earlier_results(directory)
    checks = evaluate_gpus(results, earlier.results, cluster)
    warnings = save_results(directory, validation.outcome.run_dir, results, checks)
    facts = replace(validation.facts, checks=(*validation.facts.checks, *checks), gpus=results)
    return replace(validation, facts=facts), (*earlier.warnings, *warnings)


def results_of(summary: RunSummary) -> tuple[Result, ...]:
    """gpucheck's results, as the suite's module returned them."""
    return tuple(entry for task in summary.results for entry in task.entries("gpus"))


def evaluate_gpus(results: tuple[Result, ...], earlier: tuple[Result, ...], cluster: Cluster) -> tuple[Check, ...]:
    """Every GPU check for these nodes; the expected number of GPUs is from cluster.yml."""
    return tuple(parse_check(entry) for entry in evaluate(results, earlier, cards_by_node(cluster)))


def cards_by_node(cluster: Cluster) -> dict[str, int]:
    """GPUs by node; omits MIG types like `1g.10gb`, whose count is slices, not cards."""
    return {node.name: node.gpus.count for node in cluster.nodes if node.gpus and "g." not in node.gpus.type}
