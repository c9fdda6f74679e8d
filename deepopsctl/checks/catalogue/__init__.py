"""Every check, by suite: name, what it verifies, advice."""
