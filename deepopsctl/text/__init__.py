"""Reading and writing user input, with file and line: YAML, node sets, values, problems."""
