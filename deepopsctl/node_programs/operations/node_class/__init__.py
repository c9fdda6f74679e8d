"""What decides whether two nodes without a deploy need the same: for `deepopsctl plan`. It only reads."""
