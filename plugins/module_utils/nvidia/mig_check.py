"""What keeps GPUs from being cut as cluster.yml has them, and what it says wrongly of their slices."""

from __future__ import annotations

import json

from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import mig as nvidia_mig_driver


def impossible(wanted, gpus):
    """[(GPU, message, hint)] of what no command could do."""
    found = []
    for wish in wanted:
        gpu, minor = gpus.get(wish["minor"]), wish["minor"]
        # that a whole GPU is missing is said elsewhere, and no reason to leave the others as they are
        if gpu is None and wish["slices"]:
            there = ", ".join("/dev/nvidia%d" % number for number in sorted(gpus)) or "no GPU"
            found.append((minor, "nvidia-smi does not list it, but %s" % there, "correct gpus: in cluster.yml"))
        elif gpu and wish["slices"] and gpu["current"] is None:
            found.append((minor, "%s has no MIG" % gpu["name"], "take mig: out of cluster.yml"))
    return found


def misnumbered(wanted, gpus):
    """[(GPU, message, hint)] where the driver gave slices other numbers than cluster.yml tells Slurm."""
    found = []
    for wish in wanted:
        gpu = gpus.get(wish["minor"])
        if gpu is None or not wish["numbers"] or not nvidia_mig_driver.met(wish, gpu):
            continue
        there = {}
        for profile, number, _ in gpu["slices"]:
            there[profile] = sorted(there.get(profile, []) + [number])
        if any(sorted(numbers) != there[profile] for profile, numbers in wish["numbers"].items()):
            told = json.dumps(there)
            message = "the driver numbered its slices %s, and cluster.yml says %s" % (told, json.dumps(wish["numbers"]))
            found.append(
                (wish["minor"], message, "write mig: %s for this GPU in cluster.yml, then deploy again" % told)
            )
    return found


def sentences(problems):
    """`GPU 0: message (hint)`, the hint once where several GPUs share it."""
    shown = []
    for position, (minor, message, hint) in enumerate(problems):
        last = position + 1 == len(problems) or problems[position + 1][2] != hint
        shown.append("GPU %d: %s%s" % (minor, message, " (%s)" % hint if last else ""))
    return "; ".join(shown)
