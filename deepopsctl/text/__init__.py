"""What people write, read with its file and line: YAML, node sets, values, problems."""
