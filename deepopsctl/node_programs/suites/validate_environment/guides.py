"""What users type who come from other clusters, and whether it works here: one list for the page and for the suite.

The guides are those of the Alliance, Mila, FAU and of DeepOps. Each command has one of: a shell text that the suite
runs on every node in the name of a user; the name of the check that runs it in a job; or the reason why it does not
work as the guide writes it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..._shared import as_user, command
from ..._shared.checks import FAIL, PASS, SKIP, Check
from ..._slurm_jobs.session import Session
from .checks import check

GUIDES, ATTACH = "environment-guides", "environment-attach"
LIMIT_S = 600
_MARK = "deepopsctl-guide"
# what a command needs of the cluster; without it the suite does not run it
LMOD, MODULES, PYTHON, GCC, PROXY, WHEELS, SPACES, USAGE = (
    "Lmod", "modules", "the module python", "the module gcc", "a proxy", "a wheelhouse", "spaces", "quotas or spaces",
)  # fmt: skip
# one shell, a directory of its own as home; each command in a subshell and a directory, without input
_FRAME = """\
home=$(mktemp -d) || exit 9
trap 'rm -rf -- "$home"' EXIT
cd "$home" || exit 9
export HOME="$home" SHELL=/bin/bash TMUX_TMPDIR="$home" PIP_DISABLE_PIP_VERSION_CHECK=1
"""
_TRIAL = """\
out=$( ( mkdir {number} && cd {number} && {{ {run}; }} ) </dev/null 2>&1 ); status=$?
printf '%s %s %s ' {mark} {number} "$status"; printf %s "$out" | tail -c 200 | tr '\\n' ' '; echo
"""


class Command(NamedTuple):
    """A command as guides write it."""

    typed: str
    guides: str
    run: str = ""
    check: str = ""
    here: str = ""
    needs: Sequence[str] = ()

    @property
    def works(self) -> bool:
        """Whether it does here what the guide says."""
        return bool(self.run or self.check)


_ALL = "Alliance, Mila, FAU, DeepOps"
_KEYS = "typed on your own computer. Administrators add the key: `deepopsctl people add --key`"
# made by the first that needs it: it takes longer than all others together
_VENV = "module load python && { [ -d ~/env ] || virtualenv --no-download ~/env; } && source ~/env/bin/activate && "
# by job_submit.lua, where jobs are sorted into accounts and the user has a group
_GROUP_ACCOUNT = (
    "account=$(sacctmgr -nP show association user=$(id -un) format=account | sed -n 's/_cpu$/-cpu/p' | head -n 1); "
    "if scontrol show config | grep -q '^JobSubmitPlugins.*lua' && [ \"$account\" ]; then "
    'sbatch --test-only --account="$account" --wrap=true; fi'
)
COMMANDS = (
    # to get in
    Command("ssh USER@LOGIN-NODE", _ALL, check="environment-keys", here="on your own computer"),
    Command(
        "~/.ssh/config with ProxyJump",
        "Alliance, FAU",
        check="environment-keys",
        here="`deepopsctl docs users` writes it with your site's names",
    ),
    Command(
        "ssh-keygen -t ed25519 -f FILE", "FAU, DeepOps", run="ssh-keygen -q -t ed25519 -N '' -f key && cat key.pub"
    ),
    Command("ssh-copy-id USER@HOST", "DeepOps", here=_KEYS),
    Command("CCDB, HPC portal, Duo, renewal of accounts", "Alliance, Mila, FAU", here=_KEYS),
    Command(
        "VS Code: Remote-SSH: Connect to Host ...",
        "Alliance, FAU",
        check="environment-keys",
        here="with the ~/.ssh/config of `deepopsctl docs users`",
    ),
    Command("scp -r FILE USER@HOST:PATH", "FAU", run="command -v scp"),
    Command(
        "rsync -avz --exclude '*.pt' FILE USER@HOST:PATH",
        "FAU",
        run="mkdir a && touch a/x a/y.pt && rsync -avz --exclude '*.pt' a/ b && [ -f b/x ] && [ ! -e b/y.pt ]",
    ),
    # sessions and files
    Command("echo $HOSTNAME", "Alliance", run='[ -n "$HOSTNAME" ]'),
    Command(
        "tmux, tmux ls, tmux a, tmux kill-session -t NAME",
        "Alliance",
        run="tmux -f /dev/null new-session -d -s guide 'sleep 60' && tmux ls && tmux kill-session -t guide",
    ),
    Command(
        "nano, vim, top, htop", "FAU, DeepOps", run="nano --version && vim --version && htop --version && top -b -n1"
    ),
    Command(
        "git clone URL",
        "Alliance",
        run="git init -q a && git clone -q a b && git lfs version",
        here="from the internet where the node has a way out",
    ),
    Command(
        "mkdir -p ~/projects/GROUP/USER/workspace",
        "Alliance",
        check="environment-spaces",
        here="`$PROJECT`, `~/projects/GROUP`, where the site has the space",
    ),
    Command(
        "cd $WORK, cd $HPCVAULT, cd $SCRATCH",
        "Alliance, Mila, FAU",
        check="environment-spaces",
        here="those that your site has",
    ),
    Command("chgrp -R GROUP DIRECTORY", "Mila", run='mkdir a && chgrp -R "$(id -gn)" a'),
    Command("diskusage_report", "Alliance", run="diskusage_report", needs=(USAGE,)),
    Command("diskusage_report --per_user", "Alliance", run="diskusage_report --per_user", needs=(SPACES,)),
    Command("shownicerquota.pl", "FAU", here="`diskusage_report`"),
    Command(
        "ls DIRECTORY/.snapshots; cp DIRECTORY/.snapshots/@GMT-TIME/FILE .",
        "FAU",
        here="where your site takes snapshots; they are in the home's own `.snapshots`, not in each directory",
    ),
    Command(
        "unzip FILE -d $SLURM_TMPDIR",
        "Alliance, Mila",
        check="environment-staging",
        here="also `stage-in FILE`, which unpacks on all nodes of a job",
    ),
    Command("tar -xf FILE -C $SLURM_TMPDIR; cp FILE $SLURM_TMPDIR; $TMPDIR", "Mila, FAU", check="environment-staging"),
    # modules
    Command("module avail", "Alliance, Mila, FAU", run="module -t avail 2>&1 | grep -q .", needs=(MODULES,)),
    Command("module avail python", "Alliance", run="module -t avail python 2>&1 | grep -q ^python", needs=(PYTHON,)),
    Command(
        "module spider python",
        "Mila",
        run="module spider python 2>&1 | grep -q python",
        needs=(LMOD, PYTHON),
        here="with Lmod",
    ),
    Command(
        "module load python; module unload python; module list; module purge",
        "Alliance, FAU",
        run="module load python && python --version && module list && module unload python && module purge",
        needs=(PYTHON,),
    ),
    Command(
        "module load python/3.11",
        "Alliance",
        run="module load python/3.11 && python --version | grep -q '3[.]11'",
        needs=("python/3.11",),
        here="where your site has that version: `module avail python`",
    ),
    Command(
        "module load StdEnv/2023 python/3.12",
        "Mila",
        run="module load StdEnv/2023 python/3.12 && python --version | grep -q '3[.]12'",
        needs=("StdEnv/2023", "python/3.12"),
        here="where your site has both: `module avail`; else `module load python`",
    ),
    Command("module load gcc", "Mila", run="module load gcc && $CC --version", needs=(GCC,)),
    Command(
        "module load cuda/VERSION",
        "DeepOps",
        run="module load cuda && nvcc --version",
        needs=("cuda",),
        here="where your site has CUDA toolkits: `module avail cuda`",
    ),
    Command("the Slurm module", "DeepOps", here="none is needed: every shell finds Slurm's commands"),
    Command("module load httpproxy", "Mila", check="environment-proxy-allowed"),
    Command("export http_proxy=http://proxy:80", "FAU", here="`module load httpproxy`, if your site has a proxy"),
    # Python
    Command(
        "virtualenv --no-download DIRECTORY; source DIRECTORY/bin/activate; deactivate",
        "Alliance, Mila",
        run=_VENV + "pip --version && deactivate",
        needs=(PYTHON,),
    ),
    Command(
        "pip install --no-index --upgrade pip",
        "Alliance",
        run=_VENV + "pip install --no-index --upgrade pip",
        needs=(PYTHON,),
    ),
    Command(
        "avail_wheels; avail_wheels torch",
        "Alliance, Mila",
        run="module load python && avail_wheels",
        needs=(PYTHON, WHEELS),
        here="where your site has a wheelhouse",
    ),
    Command(
        "pip install --no-index torch torchvision",
        "Alliance, Mila",
        needs=(PYTHON, WHEELS),
        run=_VENV + "pip install --no-index --no-deps $(avail_wheels --raw --column name | head -n1)",
        here="what `avail_wheels` shows",
    ),
    Command(
        "pip install --no-index -r requirements.txt",
        "Alliance",
        needs=(PYTHON, WHEELS),
        run=_VENV + "avail_wheels --raw --column name | head -n1 >r.txt && pip install --no-index --no-deps -r r.txt",
        here="check first: `avail_wheels -r requirements.txt --not-available-only`",
    ),
    Command("pip install --no-index -r torch transformers", "Alliance", here="a slip of the guide: without `-r`"),
    Command(
        "conda create, conda activate, conda install; source activate ENV",
        "FAU, DeepOps",
        here="`virtualenv`: conda is in no package of the distribution. You may install it in your own directory",
    ),
    Command(
        "python download_model.py; huggingface-cli login; huggingface-cli download",
        "Alliance",
        here="`hf auth login`, `hf download`: huggingface_hub 1.0 has no `huggingface-cli` any more. After "
        "`pip install huggingface_hub`, on a node with a way out or with `module load httpproxy`",
    ),
    Command(
        "wandb, comet_ml in jobs",
        "Alliance, Mila",
        here="by `module load httpproxy`; wandb in offline mode, then `wandb sync`",
    ),
    # Slurm
    Command(
        "sinfo; sinfo -N; sinfo -l; sinfo -s; sinfo -n NODE; sinfo -p NAME; sinfo -t idle; sinfo -o FORMAT",
        "FAU, DeepOps",
        run="sinfo && sinfo -N && sinfo -l && sinfo -s && sinfo -n $(sinfo -ho %n | head -n1) && sinfo -t idle && "
        "sinfo -o %P && sinfo -p $(sinfo -ho %R | head -n1)",
    ),
    Command(
        "squeue; squeue --me; squeue -l; squeue -P; squeue --start; with -u, -A, -j, -n, -p, -t, -o",
        "Alliance, FAU, DeepOps",
        run='squeue && squeue --me && squeue -l && squeue --start && squeue -P && squeue -u "$(id -un)" && '
        "squeue -t R && squeue -A root && squeue -n x && squeue -p $(sinfo -ho %R | head -n1) && squeue -o %i",
    ),
    Command("sq", "Alliance", run="sq"),
    Command("sacct", "Alliance, DeepOps", run="sacct"),
    Command(
        "sbatch SCRIPT with --job-name, --output, --time, --cpus-per-task, --mem",
        "Alliance, Mila, FAU, DeepOps",
        check="environment-serial",
    ),
    Command("#!/bin/bash -l, module purge, module load python", "FAU", check="environment-module-jobs"),
    Command(
        "--gpus-per-node=1; --gres=gpu:1; --gres=gpu:a40:1",
        "Alliance, Mila, FAU, DeepOps",
        check="environment-gpu",
        here="types are those of your site: `sinfo -o %G`",
    ),
    Command("--gres=gpu:a100_1g.5gb:1", "Alliance", here="where your site has MIG slices: `sinfo -o %G`"),
    Command(
        "--mail-user=ADDRESS --mail-type=ALL", "Alliance", check="environment-mail", here="where your site sends mail"
    ),
    Command("--array=0-4; --array=0-7%4; $SLURM_ARRAY_TASK_ID", "FAU", check="environment-array"),
    Command(
        "--account=def-NAME; --account=rrg-NAME; --account=aip-NAME", "Alliance, Mila", check="environment-accounts"
    ),
    Command(
        "--account=def-NAME-gpu; --account=def-NAME-cpu",
        "Mila",
        run=_GROUP_ACCOUNT,
        here="the job is charged to `def-NAME_gpu` with GPUs, to `def-NAME_cpu` without, whichever of the two you type",
    ),
    Command(
        "salloc --time=1:00:00 --gpus-per-node=1 --cpus-per-task=1 --mem=16G",
        "Alliance, Mila, FAU",
        check="guide-interactive",
        here="checked by `srun --pty bash`, which salloc starts on the node",
    ),
    Command("srun -N 1 --gpus=1 -t 01:00:00 --pty bash", "DeepOps", check="guide-interactive"),
    Command("srun -N 2 --gpus-per-node=1 nvidia-smi", "DeepOps", check="guide-two-nodes"),
    Command("sbatch job.slurm of the DeepOps guide", "DeepOps", check="guide-batch"),
    Command("srun --jobid=JOB --overlap --pty /bin/bash -l", "FAU", check="environment-attach"),
    Command(
        "srun --jobid JOB --pty nvidia-smi", "Alliance", here="with `--overlap`, or it waits for the job's own step"
    ),
    Command("scancel JOB", "Alliance, FAU, DeepOps", check="environment-attach"),
    Command("scontrol show job JOB; scontrol show nodes", "DeepOps", run="scontrol show nodes && scontrol show job"),
    Command(
        "scontrol update job JOB ...", "DeepOps", here="your own jobs; some values only an administrator may raise"
    ),
    Command("scontrol update nodename=NODE state=STATE", "DeepOps", here="for administrators: `deepopsctl node drain`"),
    Command(
        "git clone .../deepops.git; ./scripts/setup.sh; nano config/inventory; ansible all -m raw -a hostname; "
        "ansible-playbook -l slurm-cluster playbooks/slurm-cluster.yml, .../slurm-validation.yml",
        "DeepOps",
        here="for administrators: `deepopsctl init --from INVENTORY`, `doctor`, `deploy`, `validate`",
    ),
    Command("--signal, --requeue, checkpoints", "Alliance", check="environment-checkpoint"),
    Command("GNU parallel", "Alliance", check="environment-farming"),
    Command("META, GLOST", "Alliance", here="`parallel` or a job array: neither is in the distribution"),
    Command(
        "the portal's page of a job",
        "Alliance",
        here="`seff JOB`, `job-report JOB`; Grafana where your site has monitoring",
    ),
    Command(
        "nvidia-smi, top, htop in a job",
        "Alliance, FAU, DeepOps",
        here="after `srun --jobid=JOB --overlap --pty bash`; `nvidia-smi` on nodes with GPUs",
    ),
)


def verify_guides(node: str, start: Sequence[str], features: Collection[str]) -> list[Check]:
    """One check: all commands that this cluster has what they need for; `start` is a login shell that takes a text."""
    commands = runnable(features)
    text = _FRAME + "".join(
        _TRIAL.format(run=each.run, mark=_MARK, number=number) for number, each in enumerate(commands)
    )
    answer = command.run([*start, text], LIMIT_S + as_user.GRACE_S)
    ended = dict(_results(answer.output))
    failures = [
        f"{each.typed}: {ended.get(number, answer.failure)}"
        for number, each in enumerate(commands)
        if ended.get(number, "none") != ""
    ]
    good = len(commands) - len(failures)
    status = FAIL if failures else PASS
    return [check(GUIDES, node, status, good, len(commands), "commands", "; ".join(failures))]


def verify_in_job(cluster: str, session: Session) -> list[Check]:
    """One check: a command in a job that runs, next to its step, as guides attach to one; and its end by scancel."""
    expected = "attached, cancelled"
    # the step has all that the job has: without --overlap the next one would wait
    step = ["bash", "-c", f"echo {_MARK} $SLURM_JOB_ID; exec sleep 600"]
    running = session.start("attach", ["--ntasks=1"], step)
    if not running.wait_for(_MARK, 1, session.queue_timeout + session.run_timeout):
        outcome = session.finish("attach", running)
        status = SKIP if outcome.busy else FAIL
        return [check(ATTACH, cluster, status, "not started", expected, message=outcome.why)]
    # a site's TaskProlog may print as well, before the task
    job = running.text("out").partition(_MARK)[2].split()[0]
    argv = ["srun", "--jobid=" + job, "--overlap", "bash", "-lc", "echo $SLURM_JOB_ID"]
    attached = command.run(argv, session.run_timeout, env=session.environment())
    cancelled = command.run(["scancel", job], 30)
    ended = running.ended(session.run_timeout) is not None
    running.stop()
    if attached.ok and attached.output.split()[-1:] == [job] and cancelled.ok and ended:
        return [check(ATTACH, cluster, PASS, expected, expected)]
    failed = next((each for each in (attached, cancelled) if not each.ok), None)
    measured = "attached" if attached.ok else "not attached"
    printed, end = attached.output.strip() or "nothing", "ended" if ended else "did not end"
    message = failed.failure if failed else f"job {job} printed {printed}, and {end}"
    return [check(ATTACH, cluster, FAIL, measured, expected, message=message)]


def runnable(features: Collection[str]) -> list[Command]:
    """Those that the suite runs on nodes of such a cluster."""
    return [each for each in COMMANDS if each.run and all(need in features for need in each.needs)]


def features_of(request: Mapping[str, Any], listed: Sequence[str] = ()) -> list[str]:
    """What the cluster has of what commands need; `listed` are its modules."""
    software, system = request.get("modules", ()), request.get("module_system", "")
    has = {
        MODULES: bool(software),
        LMOD: system == "lmod",
        PYTHON: "python" in software,
        GCC: "gcc" in software,
        WHEELS: bool(request.get("wheels")),
        PROXY: bool(request.get("proxy")),
        SPACES: bool(request.get("spaces")),
        USAGE: bool(request.get("spaces")),
    }
    return [*(name for name, there in has.items() if there), *listed]


def _results(output: str) -> Iterator[Any]:
    """(number, why it failed); '' for a success."""
    for line in output.splitlines():
        # a person's own profile may print anything
        match = re.fullmatch(_MARK + r" ([0-9]{1,4}) ([0-9]{1,3}) ?(.*)", line)
        if match:
            yield int(match[1]), "" if match[2] == "0" else f"exits {match[2]}: {match[3].strip()}"


def login_shell(person: str) -> list[str]:
    """A login shell that takes a text: a person's, or that of the user `nobody` in an environment of its own."""
    if person:
        return as_user.login_shell(person, LIMIT_S)
    return ["runuser", "-u", "nobody", "--", "env", "-i", "HOME=/nonexistent", "PATH=/usr/bin:/bin", "bash", "-lc"]
