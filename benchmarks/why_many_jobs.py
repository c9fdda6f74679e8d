"""`why JOBID` next to many jobs: what it takes where 100,000 jobs wait and 100,000 have ended, against an empty queue.

On a cluster of a lab (`environment`, and `slurm_config: {MaxJobCount: 250000, MaxArraySize: 100001}`): its jobs and its
accounting are not what they were afterwards. What waits is real: the tasks of one held array, and 1,000 jobs of their
own. What has ended are rows of the accounting, copies of a real one.

    python -m benchmarks.why_many_jobs DIR --node ctl1 --user alice [--jobs 100000]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from benchmarks.web_sessions import Node

ENDED, SINGLE = 5_000_000, 1000
_COPY = """
set group_concat_max_len = 100000;
set @columns = (select group_concat(concat('`', column_name, '`')) from information_schema.columns
  where table_schema = database() and table_name = '{cluster}_job_table'
  and column_name not in ('job_db_inx', 'id_job'));
set @line = concat('insert into `{cluster}_job_table` (id_job, ', @columns, ') select {first} + seq, ', @columns,
  ' from `{cluster}_job_table`, seq_1_to_{jobs} where id_job = {job}');
prepare copied from @line; execute copied;
"""
_TIMED = (
    "began=$(date +%s%N); runuser -u {user} -- why --json {job}; echo; echo $(( ($(date +%s%N) - began) / 1000000 ))"
)


class Queue:
    """The jobs of one user."""

    def __init__(self, node: Node, user: str) -> None:
        self._node, self._user = node, user

    def submit(self, options: str) -> str:
        """A job's number."""
        return self._node.output_of(f"cd /tmp && runuser -u {self._user} -- sbatch --parsable {options}").strip()

    def why(self, job: str) -> str:
        """What it takes, in words."""
        answer, _, took = self._node.output_of(_TIMED.format(user=self._user, job=job)).strip().rpartition("\n")
        reply = json.loads(answer)
        causes = ", ".join(cause["key"] for cause in reply["causes"]) or "no cause"
        return f"{int(took) / 1000:.2f} s, {reply['calls']} calls ({reply['state']}: {causes})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--node", required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--jobs", type=int, default=100_000)
    options = parser.parse_args()
    node = Node(options.directory, options.node)
    queue = Queue(node, options.user)
    ended = queue.submit("--wait --output=/dev/null --wrap=false || true")
    busy = queue.submit("--exclusive --time=120 --output=/dev/null --wrap='sleep 3600'")
    waits = queue.submit("--exclusive --time=60 --output=/dev/null --wrap=true")
    time.sleep(20)
    jobs = {"ended": ended, "waits for its turn": waits, "runs": busy}
    for what, job in jobs.items():
        print(f"{what}: {queue.why(job)}", flush=True)

    began = time.monotonic()
    array = queue.submit(f"--hold --array=1-{options.jobs} --output=/dev/null --wrap=true")
    node.output_of(
        f"cd /tmp && runuser -u {options.user} -- bash -c 'for job in {{1..{SINGLE}}}; do "
        "sbatch --hold --output=/dev/null --wrap=true >/dev/null; done'"
    )
    cluster = node.output_of("scontrol show config | awk '/^ClusterName/ {print $3}'").strip()
    node.output_of(
        f"mysql slurm_acct_db <<'E'\n{_COPY.format(cluster=cluster, first=ENDED, jobs=options.jobs, job=ended)}\nE"
    )
    waiting = node.output_of("squeue -h -r -t PD | wc -l").strip()
    records = node.output_of("sdiag | awk '/Jobs pending/ {print $NF}'").strip()
    print(f"\n{waiting} jobs wait (sdiag: {records}), made in {time.monotonic() - began:.0f} s")
    more = {f"{array}_1": "held", f"{ENDED + options.jobs}": "ended, a copy"}
    for what, job in {**jobs, **{what: job for job, what in more.items()}}.items():
        print(f"{what}: {queue.why(job)}", flush=True)
    began = time.monotonic()
    node.output_of("squeue -h -r -o '%i %T' | wc -l")
    print(f"for comparison, squeue of all: {time.monotonic() - began:.2f} s")
    node.output_of(f"scancel --user={options.user}")


if __name__ == "__main__":
    main()
