"""The steps of `deepopsctl upgrade slurm` on a node: what is there, copies to go back to, and whether daemons serve."""

DIRECTORY = "/var/lib/deepopsctl/upgrade"
# on the first controller, while an upgrade is under way; a deploy refuses to mix releases while it is there
RECORD = DIRECTORY + "/slurm.json"
# what the host of slurmctld or slurmdbd had before, to go back to
SAVED = DIRECTORY + "/saved"
PACKAGES = DIRECTORY + "/packages"
# where deploys unpack the cluster's repositories, a directory each; the previous one stays until an upgrade has ended
REPOSITORIES = "/var/lib/deepopsctl/packages"
# for people: the state that a slurmctld left which did not start
FAILED = "/var/lib/deepopsctl/upgrade-failed"


class UpgradeError(Exception):
    """A sentence about what went wrong."""
