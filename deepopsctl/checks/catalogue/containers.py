"""The checks of the suite `containers` by name, as docs/deploy/containers.md defines them."""

from __future__ import annotations

from deepopsctl.checks.catalogue.entry import Entry

_GROUP = "Containers"

CONTAINERS = {
    "containers-podman": Entry(
        _GROUP, "Podman", "A job makes an image of a local tree and starts it, with the job's cores and all ids.",
        "on the node, in a job: `podman info`, and see Troubleshooting in docs/deploy/containers.md",
    ),
    "containers-charliecloud": Entry(
        _GROUP, "Charliecloud", "`ch-run` starts the same tree in a job, with the job's cores.",
        "on the node, in a job: `ch-run -v TREE -- /bin/sh`; user namespaces have to be allowed there",
    ),
    "containers-apptainer": Entry(
        _GROUP, "Apptainer", "A job makes an image file of the same tree and starts it with `--nv` and its cores.",
        "on the node, in a job: `apptainer --debug exec IMAGE true`, and Troubleshooting in docs/deploy/containers.md",
    ),
    "containers-pyxis": Entry(
        _GROUP, "Pyxis", "`srun --container-image` starts an image file of the same tree, with the job's cores.",
        "`srun --help` lists --container-image where Pyxis is loaded; on the node: slurmd's log, lines with pyxis",
    ),
    "containers-oci": Entry(
        _GROUP, "OCI bundle", "`srun --container` starts a bundle of the same tree, with the job's cores.",
        "on the node: `ls /run/slurm/conf/oci.conf /usr/bin/crun`, and slurmd's log; a deploy of slurm and environment "
        "brings both",
    ),
    "containers-registry": Entry(
        _GROUP, "registry", "An image that root adds to the site's registry is pulled and started in a job.",
        "`journalctl -u docker-registry` on environment_registry_node; the nodes' names have to resolve",
    ),
    "containers-devices": Entry(
        _GROUP, "GPUs", "A container with all GPUs of the node opens those of its job, and no others.",
        "`ConstrainDevices=yes` in cgroup.conf keeps jobs from other GPUs; without any in the container: "
        "`systemctl restart nvidia-cdi-refresh`",
    ),
    "containers-starts": Entry(
        _GROUP, "starts at once", "So many containers start at the same time, spread over the tested nodes.",
        "see the message; memory of the job, or processes of the user (`ulimit -u`)",
    ),
    "containers-removed": Entry(
        _GROUP, "removed", "After the jobs nothing is left of them: no directory, no process.",
        "`journalctl -t deepopsctl-epilog` on the node",
    ),
}  # fmt: skip
