"""Validations: result, history of GPU measurements, burn-in."""
