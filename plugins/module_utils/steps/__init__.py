"""Modules whose work can be a step of one call (plugins/modules/node_steps.py): links to them."""
