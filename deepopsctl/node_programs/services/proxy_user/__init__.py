"""Whose connection a proxy has: nodes answer it (RFC 1413, for the proxy alone), and Squid asks by a helper."""
