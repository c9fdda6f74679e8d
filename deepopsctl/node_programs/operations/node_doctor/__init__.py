"""Report everything about a node that a deploy depends on. Reads only: `deepopsctl doctor` evaluates it."""
