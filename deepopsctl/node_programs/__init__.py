"""Programs for nodes: standard library only, Python 3.9 and newer, nothing else of deepopsctl."""
