"""The first job of the site's own user guide, submitted as it is printed there."""

from __future__ import annotations

import re

from ..._shared import slurm_client, slurm_output
from ..._shared.checks import FAIL, PASS, SKIP, Check, one_line
from ..._slurm_jobs import placement, slurm
from ..._slurm_jobs.session import is_busy
from . import batch
from .context import Context, Job, check, failed

CHECK = "guide-own"
_EXPECTED = "submitted and completed"
# the user of a validation need not be in the account that it names
_ACCOUNT = re.compile(r"^#SBATCH --account=.*\n", re.MULTILINE)
_GPU_COMMAND = "nvidia-smi -L"


def verify_script(context: Context) -> list[Check]:
    """Submit it, and wait for its end; only its output goes elsewhere, to be read and removed."""
    session, target = context.session, context.inputs.cluster
    script, how = adapted(context)
    output = batch.path(session, CHECK)
    answer = session.sbatch("", [f"--output={output}", *_without_silent_nodes(context)], script)
    if not answer.ok:
        return [failed(CHECK, target, f"sbatch {how}: {one_line(answer.message)}", "refused", _EXPECTED)]
    left = session.wait([answer.output])
    if answer.output in left:
        state, reason = left[answer.output]
        # it was accepted, which a queue that is full does not change
        status = SKIP if state == "PENDING" and is_busy(reason) else FAIL
        return [check(CHECK, target, status, state.lower(), _EXPECTED, message=f"{how}; Slurm's reason: {reason}")]
    shown = slurm_output.record(slurm.ask(slurm_client.show("job", answer.output)).output)
    files = batch.Files(shown.get("BatchHost", ""), shown.get("Partition", ""), [output])
    printed, error = batch.fetch(session, "fetch-own-guide", files)
    state = shown.get("JobState", "").lower()
    # the epilog may still run
    if state not in ("completed", "completing") or shown.get("ExitCode") != "0:0":
        why = one_line(printed or error) or "no output"
        return [failed(CHECK, target, f"{how}: {why}", state or "not known", _EXPECTED)]
    context.jobs.append(Job(answer.output, CHECK))
    return [check(CHECK, target, PASS, "completed", _EXPECTED, message=how)]


def adapted(context: Context) -> tuple[str, str]:
    """The script as this user can run it here, and in words what is not as printed."""
    script, others = context.inputs.guide_script, []
    if _ACCOUNT.search(script):
        script = _ACCOUNT.sub("", script)
        others.append("without its account")
    if _GPU_COMMAND in script and not all(context.inputs.report(name).get("nvidia_smi") for name in context.names):
        script = script.replace(_GPU_COMMAND, "hostname")
        others.append("hostname for nvidia-smi, which not all nodes have")
    return script, ", ".join(others) or "as printed"


def _without_silent_nodes(context: Context) -> list[str]:
    """Slurm may still believe in a node that did not answer."""
    nodes = context.snapshot.nodes
    silent = [name for name in nodes if name not in context.names and placement.is_up(nodes[name])]
    return [f"--exclude={','.join(silent)}"] if silent else []
