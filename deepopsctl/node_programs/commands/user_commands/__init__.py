"""Commands that users of national centres know: `seff` and `partition-stats`; `sq` is one line of shell."""
