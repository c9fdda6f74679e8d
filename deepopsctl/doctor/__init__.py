"""The checks of `deepopsctl doctor`: pure functions from facts to checks."""
