#!/usr/bin/python
"""Run a program of deepopsctl on a node. The action plugin of the same name does it: here is what it takes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_program
short_description: Run one of deepopsctl's programs on a node
description:
  - Packs the program on the control machine and runs it from memory with the node's own python3. No file comes to the
    node, and none is left. The node needs Python 3.9, and nothing else.
  - The program runs as the connecting user, or as another one with C(become). It gets O(input) and C(check_mode), and
    what it returns are the keys of the result.
  - A program may work in short calls, with pauses between them, so that no connection has to last as long as its work.
options:
  name: {description: A directory of C(deepopsctl/node_programs)., type: str, required: true}
  input: {description: What the program works with., type: dict, default: {}}
  clock:
    description: Whether to return the node's clock, read within the bounds of a round trip.
    type: bool
    default: false
  patience:
    description: Seconds for which a node that does not answer is asked again.
    type: float
    default: 0.0
  sudo_optional:
    description:
      - Whether the program runs without sudo where the node's sudo does not work. The result then says so, and when
        the node was asked.
    type: bool
    default: false
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: End a burn-in
  deepopsctl.cluster.node_program:
    name: burn_in
    input:
      phase: stop
      token: 3f09ac
"""

RETURN = r"""
deepops: {description: What deepopsctl reads., type: dict, returned: with most programs}
clock:
  description: The node's clock as C(remote), and the control machine's C(before) and C(after).
  type: dict
  returned: "with O(clock=true)"
invocation:
  description: The name and the input, for C(deepopsctl doctor), which asks the same without Ansible the next time.
  type: dict
  returned: "with O(sudo_optional=true)"
"""
