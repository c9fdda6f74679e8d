"""Storage as cluster.yml declares it, and as a role has it."""

from __future__ import annotations

from deepopsctl.cluster.spec import parse_spec
from deepopsctl.model.storage import Mount, Platform
from deepopsctl.storage.node_plan import NodePlan, plan_node
from deepopsctl.storage.writer import from_variable, variable

HEAD = """\
schema: 1
nodes:
  - {names: ctl1, addresses: "192.0.2.1", roles: [controller]}
  - {names: "gpu[1-3]", addresses: "192.0.2.[11-13]", roles: [compute]}
  - {names: login1, addresses: "192.0.2.2", roles: [login]}
storage:
"""

WHOLE = (
    HEAD
    + """\
  - {name: home, type: nfs, source: "ctl1:/srv/home", path: /home, required: true, options: [ro], nfs: {nconnect: 4}}
  - {name: data, type: nfs, source: "filer.example.com:/vol/1", path: /data, nodes: "compute,login1", automount: true,
     automount_idle: 10m}
  - {name: disk, type: local, source: LABEL=disk, path: /scratch, nodes: "gpu[1-2]", user_writable: /scratch/tmp}
  - {name: fast, type: tmpfs, path: /data/fast, nodes: compute, tmpfs: {size: 16G}}
"""
)

SERVED = """\
schema: 1
nodes:
  - {names: ctl1, addresses: 192.0.2.1, roles: [controller]}
  - {names: nfs1, addresses: 192.0.2.2, roles: [nfs_server]}
  - {names: "gpu[1-2]", roles: [compute]}
partitions: [{name: gpu, nodes: "gpu[1-2]"}]
storage:
"""

HOME = """\
  - name: home
    type: nfs
    source: nfs1:/srv/home
    path: /home
    quota:
      default: {space: 50G, space_soft: 45G, files: 500k}
      users: {alice: {space: 2T}}
"""

PROJECT = """\
  - name: project
    type: nfs
    source: nfs1:/srv/project
    path: /project
    quota:
      kind: project
      default: {space: 1T}
      grace: 2w
      projects: {def-prof: {}, prof-b: {path: rrg/prof-b, id: 4242, space: 10T, files: 5M}}
"""

SCRATCH = """\
  - name: scratch
    type: nfs
    source: "192.0.2.99:/scratch"
    path: /scratch
    quota: {kind: user}
    purge: {age: 60d, mode: delete, warn: 14d, mail: hpc.example.com, exclude: ["*.keep", shared/data]}
"""

ADDRESSES = {"ctl1": "192.0.2.1", "gpu1": "192.0.2.11", "login1": ""}

DEBIAN13 = Platform("Debian 13", "6.12.57+deb13-amd64")


def read(text: str) -> tuple[Mount, ...]:
    """As a role has them."""
    return from_variable(variable(parse_spec(SERVED + text, "cluster.yml").storage))


def mounts(text: str = WHOLE) -> tuple[Mount, ...]:
    """As a role has them."""
    return from_variable(variable(parse_spec(text, "cluster.yml").storage))


def plan(host: str, text: str = WHOLE) -> NodePlan:
    return plan_node(mounts(text), host, ADDRESSES, DEBIAN13)
