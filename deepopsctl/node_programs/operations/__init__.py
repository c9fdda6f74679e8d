"""What the control machine starts for an operation: doctor, claim, backup, upgrade, takeover."""
