"""What nodes try together on one entry: write, see each other's files, replace them, lock them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..._shared.checks import FAIL, PASS, WARN, Check
from . import checks, operations
from .agent_pool import AgentPool, Order, Result
from .checks import trouble
from .inputs import Bounds, Expected, Seen

WRITE, VISIBLE, NAMES, RENAME, LOCK, FLOCK = (
    "storage-write",
    "storage-visible",
    "storage-names",
    "storage-rename",
    "storage-lock",
    "storage-flock",
)
TOGETHER = (VISIBLE, NAMES, RENAME, LOCK, FLOCK)
_SIZE = 65536
_RENAMING_S = 2.0
# options by which locks are each node's own matter, or disabled; by type of lock
_OWN_LOCKS = {
    "fcntl": ("nolock", "local_lock=posix", "local_lock=all", "localflock", "noflock"),
    "flock": ("nolock", "local_lock=flock", "local_lock=all", "localflock", "noflock"),
}
# file systems whose locks reach other nodes only where their own configuration says so
_BY_CONFIGURATION = ("beegfs", "lustre", "glusterfs")


class TrialContext:
    """`nodes` are those that still take part: one that hangs is listed once and left out of what follows."""

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
        self.checks: list[Check] = []
        self.directory = ""
        self.name = operations.PREFIX + token
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

    def ask(self, *orders: Order) -> list[dict[str, Result]]:
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

    def order_on(self, act: str, to: Sequence[str], limit: float = 0, **parameters: Any) -> dict[str, Result]:
        """One order; the answers of those that did not hang."""
        (results,) = self.ask(self.order(act, to, limit, **parameters))
        return {node: result for node, result in results.items() if node in self.nodes}

    def good(self, name: str, results: Mapping[str, Result], expected: str) -> dict[str, Result]:
        """The results that are none of an error; errors are reported as failures of this check."""
        for node, result in results.items():
            if "error" in result:
                self.add_check(name, node, FAIL, result.get("errno") or "an error", expected, checks.trouble(result))
        return {node: result for node, result in results.items() if "error" not in result}

    def path(self, name: str) -> str:
        """A file of the trial."""
        return f"{self.directory}/{name}"


def read_only(context: TrialContext) -> None:
    """Mounted `ro`: the kernel must refuse."""
    # a name of its own for each: where it can be written, one must not find what another is about to remove
    name = context.name + "-{node}"
    for node, result in context.order_on("refused", context.nodes, directory=context.entry.path, name=name).items():
        if result.get("refused") == "EROFS":
            context.add_check(WRITE, node, PASS, "EROFS", "EROFS", "mounted read-only, and the kernel refuses to write")
        else:
            was = trouble(result) or result["refused"] or "written"
            context.add_check(WRITE, node, FAIL, was, "EROFS", "it should be read-only")


def write(context: TrialContext) -> list[str]:
    """Every node writes a file as an ordinary user; those that could, in the trial's directory."""
    bases = context.order_on("base", context.nodes, path=context.entry.path, wanted=context.entry.user_writable)
    answers = context.good(WRITE, bases, "a directory to write to")
    for node, result in answers.items():
        if not result["directory"]:
            text = f"an ordinary user can write to none of {', '.join(result['tried'])}"
            context.add_check(WRITE, node, FAIL, "no directory", "a directory to write to", text)
    able = [node for node in context.nodes if answers.get(node, {}).get("directory")]
    if not able:
        return []
    context.directory = f"{answers[able[0]]['directory'].rstrip('/')}/{context.name}"
    context.order_on("mine", able, directories=[context.directory])
    makers = able[:1] if context.entry.shared else able
    made = context.good(WRITE, context.order_on("make", makers, directory=context.directory), "a new directory")
    if context.entry.shared and not made:
        context.skip(WRITE, [node for node in able if node not in makers], "no directory could be made for the trial")
        return []
    ready = [node for node in able if node in context.nodes and (context.entry.shared or node in made)]
    if context.entry.shared:
        # before anybody makes them: a client may remember that a name was not there
        context.order_on("absent", ready, path=context.path("late"))
    wrote = _write_all(context, ready, 1)
    done = context.good(WRITE, wrote, f"a file of {_SIZE // 1024} KiB")
    expected = {node: operations.digest(operations.content(node, 1, _SIZE)) for node in done}
    for node, result in done.items():
        same = result["digest"] == expected[node]
        text = "" if same else "what was read back is not what was written"
        context.add_check(WRITE, node, PASS if same else FAIL, "written" if same else "other data", "written", text)
    return [node for node in ready if node in done]


def _write_all(context: TrialContext, nodes: Sequence[str], version: int) -> dict[str, dict[str, Any]]:
    return context.order_on(
        "write", nodes, path=context.path("{node}.data"), label="{node}", version=version, size=_SIZE
    )


def visible(context: TrialContext, nodes: Sequence[str]) -> None:
    """Everyone reads what the one before it wrote: the new file, then its second version."""
    before = {node: {"peer": nodes[place - 1]} for place, node in enumerate(nodes)}
    first = context.order_on("read", nodes, path=context.path("{peer}.data"), each=before)
    _write_all(context, nodes, 2)
    second = context.order_on("read", nodes, path=context.path("{peer}.data"), each=before)
    for node in [node for node in nodes if node in first and node in second]:
        peer = before[node]["peer"]
        wrong = [
            text
            for result, version, text in ((first[node], 1, "the new file"), (second[node], 2, "its second version"))
            if result.get("digest") != operations.digest(operations.content(peer, version, _SIZE))
        ]
        bound = context.seen[node].data_bound
        if not wrong:
            context.add_check(VISIBLE, node, PASS, "at once", "at once", f"read what {peer} had written and closed")
        elif bound and wrong == ["its second version"]:
            text = f"{wrong[0]} was not seen at once; its options allow {bound:g} s"
            context.add_check(VISIBLE, node, WARN, "later", "at once", text)
        else:
            error = trouble(second[node]) or trouble(first[node])
            text = f"{' and '.join(wrong)} of {peer} was not what was read here" + (f" ({error})" if error else "")
            context.add_check(VISIBLE, node, FAIL, "other data", "at once", text)


def renames(context: TrialContext, nodes: Sequence[str]) -> None:
    """One node replaces a file by rename again and again; the others must always find a whole one."""
    writer, readers, path = nodes[0], list(nodes[1:]), context.path("replaced")
    start = context.order_on("write", [writer], path=path, label="version", version=0)
    if "digest" not in start.get(writer, {}):
        context.skip(RENAME, readers, f"{writer} could not write the file: {trouble(start.get(writer, {}))}")
        return
    limit = _RENAMING_S + context.bounds.answer_s
    wrote, followed = context.ask(
        context.order("replace", [writer], limit, path=path, seconds=_RENAMING_S),
        context.order("follow", readers, limit, path=path, seconds=_RENAMING_S),
    )
    count = wrote[writer].get("renames", 0)
    if not count:
        context.add_check(RENAME, writer, FAIL, "no rename", "atomic", trouble(wrote[writer]))
        return
    good = context.good(RENAME, {node: result for node, result in followed.items() if node in context.nodes}, "atomic")
    for node, result in good.items():
        _check_rename(context, node, writer, count, result)


def _check_rename(context: TrialContext, node: str, writer: str, count: int, result: Mapping[str, Any]) -> None:
    stale_allowed = context.entry.type == "nfs"
    wrong = [f"{result['missing']} times there was no such name"] if result["missing"] else []
    wrong += [f"{result['torn']} times it was not whole"] if result["torn"] else []
    allowed = ", as NFS allows" if stale_allowed else ""
    stale_text = f"{result['stale']} times the opened one was gone (ESTALE){allowed}"
    wrong += [stale_text] if result["stale"] and not stale_allowed else []
    text = f"{count} renames by {writer}, {result['reads']} reads"
    notes = [stale_text] if result["stale"] and stale_allowed else []
    message = ": ".join([text, "; ".join([*wrong, *notes])]) if wrong or notes else text
    context.add_check(RENAME, node, FAIL if wrong else PASS, "not atomic" if wrong else "atomic", "atomic", message)


def locks(context: TrialContext, nodes: Sequence[str]) -> None:
    """What one node has locked, no other gets; once it is released, all do."""
    for lock_type, name in (("fcntl", LOCK), ("flock", FLOCK)):
        _lock(context, nodes, lock_type, name)


def _lock(context: TrialContext, nodes: Sequence[str], lock_type: str, name: str) -> None:
    holder, others, path = nodes[0], list(nodes[1:]), context.path("locked")
    local = sorted({*context.seen[holder].options, *context.entry.options} & set(_OWN_LOCKS[lock_type]))
    if local:
        context.skip(name, others, f"locks are each node's own, by its option {local[0]}")
        return
    servers = [node for node in nodes if context.seen[node].served_here] if lock_type == "flock" else []
    if servers:
        # knfsd keeps clients' flocks as fcntl locks: a flock of the server itself is another thing
        context.skip(name, servers, "it serves this: its own flocks and those of NFS clients do not meet")
        others = [node for node in others if node not in servers]
        if not others or holder in servers:
            return
    context.order_on("write", [holder], path=path, label="locked", version=1)
    held = context.order_on("hold", [holder], path=path, lock_type=lock_type, key=lock_type).get(holder, {})
    if held.get("lock") != operations.FREE:
        why = trouble(held) or "this file system has no such locks"
        status = WARN if context.entry.type in _BY_CONFIGURATION and held.get("lock") == operations.NONE else FAIL
        context.add_check(name, holder, status, "no lock", "a lock", f"{holder} could not lock a file: {why}")
        context.order_on("release", [holder], key=lock_type)
        return
    during = context.order_on("probe", others, path=path, lock_type=lock_type)
    context.order_on("release", [holder], key=lock_type)
    after = context.order_on("probe", others, path=path, lock_type=lock_type)
    for node in [node for node in others if node in during and node in after]:
        _check_lock(context, name, node, holder, during[node], after[node])


def _check_lock(
    context: TrialContext, name: str, node: str, holder: str, during: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    error = trouble(during) or trouble(after)
    if error:
        context.add_check(name, node, FAIL, "an error", "excluded", error)
    elif during["lock"] == operations.FREE:
        text = f"it got the lock that {holder} was holding"
        context.add_check(
            name, node, WARN if context.entry.type in _BY_CONFIGURATION else FAIL, "not excluded", "excluded", text
        )
    elif operations.NONE in (during["lock"], after["lock"]):
        context.add_check(name, node, FAIL, "no lock", "excluded", f"this node has no locks here, {holder} has")
    elif after["lock"] != operations.FREE:
        text = f"it did not get the lock after {holder} had released it"
        context.add_check(name, node, FAIL, "still held", "excluded", text)
    else:
        context.add_check(name, node, PASS, "excluded", "excluded", f"not while {holder} held it, at once afterwards")


def make_late(context: TrialContext, nodes: Sequence[str]) -> None:
    """Create the name that no node found before; when each sees it is checked at the end."""
    context.order_on("write", list(nodes)[:1], path=context.path("late"), label="late", version=1)


def late(context: TrialContext, nodes: Sequence[str], since: float) -> None:
    """The new name must be there within what the mount promises; `since` are the seconds it has had already."""
    others = list(nodes[1:])
    bound = max([context.seen[node].name_bound for node in others] or [0.0])
    left = max(0.0, bound - since)
    results = context.order_on(
        "appears", others, left + context.bounds.answer_s, path=context.path("late"), seconds=left
    )
    for node, result in context.good(NAMES, results, f"within {bound:g} s").items():
        own, after = context.seen[node].name_bound, result["after"]
        expected = "at once" if not own else f"within {own:g} s"
        if after is None:
            text = f"a new name that {nodes[0]} made is not seen here"
            context.add_check(NAMES, node, FAIL, "never", expected, text)
        else:
            when = f"at the first check, {since:.0f} s later" if after < 1 else f"after {since + after:.0f} s"
            context.add_check(NAMES, node, PASS, "seen", expected, "a name that was not there before: seen " + when)
