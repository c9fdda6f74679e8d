"""A finished validation: its result, the history of GPU measurements, burn-in."""
