"""The load of a whole node, for hours: what the burn-in runs on it."""
