"""Run a command on a node: it always comes back, and never raises for what the command does."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile

# what a shell says of a command that took too long, and of one that is not there
TIMED_OUT, MISSING = 124, 127


def run(argv, seconds, text=None, environment=None):
    """(exit status, combined output); TIMED_OUT and MISSING with a sentence for output."""
    try:
        done = subprocess.run(
            argv,
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            env=dict(os.environ, **(environment or {})),
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return TIMED_OUT, "no answer within %d s" % seconds
    except OSError as error:
        return MISSING, str(error)
    return done.returncode, done.stdout.strip()


def syntax_error(files):
    """The error text of Slurm's own parser for slurm.conf and the files next to it; '' when valid, or without it."""
    directory = tempfile.mkdtemp(prefix="deepopsctl-slurm-")
    try:
        for path, content in files.items():
            with open(os.path.join(directory, os.path.basename(path)), "w") as stream:
                stream.write(content)
        # parses the whole file, needs no daemon and touches none
        candidate = os.path.join(directory, "slurm.conf")
        status, output = run(["scontrol", "show", "hostnames", "x"], 60, environment={"SLURM_CONF": candidate})
        return output.replace(directory, "(new)") if status not in (0, MISSING) else ""
    finally:
        shutil.rmtree(directory)
