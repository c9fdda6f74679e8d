"""What `deepopsctl doctor` judges: pure functions from what was seen to checks."""
