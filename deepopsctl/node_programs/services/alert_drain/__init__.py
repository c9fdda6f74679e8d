"""`deepops-alertdrain`: drains nodes while a draining alert fires; Python's standard library only (3.9)."""
