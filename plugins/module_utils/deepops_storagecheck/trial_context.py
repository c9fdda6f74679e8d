"""One entry of `storage` while it is tried: who takes part, where, and what was found."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from . import agent_operations, checks
from .agent_pool import AgentPool, Order, Result
from .checks import FAIL, Check
from .inputs import Bounds, Expected, Seen


class TrialContext:
    """`nodes` are those that still take part: one that hangs is named once and left out of what follows."""

    def __init__(
        self,
        entry: Expected,
        nodes: Sequence[str],
        seen: Mapping[str, Seen],
        pool: AgentPool,
        token: str,
        bounds: Bounds,
    ) -> None:
        self.entry, self.nodes, self.seen, self.bounds = entry, list(nodes), seen, bounds
        self.checks: List[Check] = []
        self.directory = ""
        self.name = agent_operations.PREFIX + token
        self._pool = pool

    def target(self, node: str) -> str:
        """What its checks are about."""
        return checks.place(node, self.entry.name)

    def add_check(
        self, name: str, node: str, status: str, measured: object = "", expected: object = "", message: str = ""
    ) -> None:
        """Note a check about a node."""
        self.checks.append(checks.check(name, self.target(node), status, measured, expected, message=message))

    def skip(self, name: str, nodes: Sequence[str], reason: str) -> None:
        """Note a check that could not be made."""
        self.checks += [checks.skip(name, self.target(node), reason) for node in nodes]

    def order(self, act: str, to: Sequence[str], limit: float = 0, **parameters: Any) -> Order:
        """Something for some of the nodes, with the usual limit."""
        each = parameters.pop("each", {})
        return Order(act, list(to), limit or self.bounds.answer_s, parameters, each)

    def ask(self, *orders: Order) -> List[Dict[str, Result]]:
        """Give orders; nodes that hang take no further part."""
        answers = self._pool.ask(*[order for order in orders if order.to])
        filled = iter(answers)
        results_by_order = [next(filled) if order.to else {} for order in orders]
        for results in results_by_order:
            for node, result in results.items():
                if node in self.nodes and ("hung" in result or result.get("lost")):
                    self.nodes.remove(node)
                    self.add_check("storage-answers", node, FAIL, "no answer", "an answer", checks.trouble(result))
        return results_by_order

    def do(self, act: str, to: Sequence[str], limit: float = 0, **parameters: Any) -> Dict[str, Result]:
        """One order; the answers of those that did not hang."""
        (results,) = self.ask(self.order(act, to, limit, **parameters))
        return {node: result for node, result in results.items() if node in self.nodes}

    def good(self, name: str, results: Mapping[str, Result], expected: str) -> Dict[str, Result]:
        """The results that are none of an error; errors are reported as failures of this check."""
        for node, result in results.items():
            if "error" in result:
                self.add_check(name, node, FAIL, result.get("errno") or "an error", expected, checks.trouble(result))
        return {node: result for node, result in results.items() if "error" not in result}

    def path(self, name: str) -> str:
        """A file of the trial."""
        return "{}/{}".format(self.directory, name)
