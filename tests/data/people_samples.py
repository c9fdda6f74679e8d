"""A small cluster, and the public key of a user of it."""

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGKczsoBPo43NtEQHvc+z86TsLja6MMT2wg6OjUJBJVp alice@laptop"
CLUSTER = """\
schema: 1
cluster: {name: hpc, user: ubuntu}
nodes:
  - {names: ctl1, addresses: 192.0.2.1, roles: [controller]}
  - {names: n1, addresses: 192.0.2.2, roles: [compute]}
"""
