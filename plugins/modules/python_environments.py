#!/usr/bin/python
"""Environments of Python packages on a node. The action plugin of the same name does it: here is what it takes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: python_environments
short_description: Build environments of Python packages from locked wheels
description:
  - Builds what is not there yet, each environment in its directory at once. Wheels that the wheelhouse lacks are
    fetched by the control machine and copied, where O(fetch) is true.
  - Hashes are compared on both machines, and nothing of a wheel is run. What is there belongs to root.
options:
  directory: {description: Where environments and their modules are., type: path, required: true}
  wheelhouse: {description: A directory of wheels that this node mounts., type: path, required: true}
  environments:
    description: Versions as the filter C(environments_on_nodes) returns them.
    type: list
    elements: dict
    required: true
  fetch: {description: Whether this node fills the wheelhouse for all., type: bool, default: false}
  build: {description: Whether environments are built on this node., type: bool, default: true}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Build environments of Python packages
  deepopsctl.cluster.python_environments:
    directory: /opt/deepopsctl/environments
    wheelhouse: /opt/software/wheels
    environments: "{{ environments_versions }}"
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
"""
