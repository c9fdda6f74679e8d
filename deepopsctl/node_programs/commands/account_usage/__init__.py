"""What accounts have used, in reference GPU units: written by root every hour, for each user's own `usage`."""

# a file for each user, whose it is, below a directory of root's
DIRECTORY = "/var/lib/deepopsctl/usage"
CONFIG = "/etc/deepopsctl/usage.json"
