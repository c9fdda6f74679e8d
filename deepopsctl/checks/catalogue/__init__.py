"""Every check there is, by suite: its name, what it is about, what to do when it fails."""
