"""Counts what each member of a group has in the group's directory, every night, for `diskusage_report --per_user`."""
