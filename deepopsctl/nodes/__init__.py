"""Nodes that join, leave, are replaced, drained or resumed."""
