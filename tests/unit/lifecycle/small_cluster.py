"""A cluster of each kind of node, for plans of upgrades."""

from deepopsctl.cluster.spec import parse_spec

CLUSTER = parse_spec(
    """\
schema: 1
cluster: {name: hpc, user: ubuntu}
nodes:
  - {names: ctl1, roles: [controller]}
  - {names: login1, roles: [login]}
  - {names: "cn[1-4]", roles: [compute]}
partitions: [{name: batch, nodes: "cn[1-4]"}]
""",
    "cluster.yml",
)
