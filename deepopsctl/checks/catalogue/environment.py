"""The checks of the suite `environment` by name, as docs/reference/validate-environment.md defines them."""

from __future__ import annotations

from deepopsctl.checks.catalogue.entry import Entry

_PEOPLE = "People"
_COMMANDS = "Commands"
_LOGIN = "Login nodes"
_FILES = "Files"
_MODULES = "Modules"
_NETWORK = "Network of jobs"
_EXAMPLES = "Example jobs"
_DEPLOY = "`deepopsctl deploy environment` makes accounts and groups as people.yml declares them"
_OUTPUT = "the message has the end of the job's output: submit the example yourself"

ENVIRONMENT = {
    "environment-people": Entry(
        _PEOPLE, "people", "The cluster directory has a people.yml to test.",
        "declare users in people.yml: `deepopsctl people add`",
    ),
    "environment-ids": Entry(
        _PEOPLE, "user ids", "Each person of people.yml has the declared user id on the node.", _DEPLOY, "ids",
    ),
    "environment-groups": Entry(
        _PEOPLE, "groups", "Each person is in the declared groups on the node, and these have the declared ids.",
        _DEPLOY, "groups",
    ),
    "environment-keys": Entry(
        _PEOPLE, "keys", "sshd reads the keys of people.yml, and has those of each person.", _DEPLOY, "keys",
    ),
    "environment-expiry": Entry(
        _PEOPLE, "expiry", "Each account expires on the declared day.", _DEPLOY, "expiry",
    ),
    "environment-homes": Entry(
        _PEOPLE, "homes", "Each person has a home on the node, and owns it.",
        "is the file system mounted? `deepopsctl deploy storage environment` mounts it, and makes homes", "homes",
    ),
    "environment-accounts": Entry(
        _PEOPLE, "Slurm accounts", "Each person may charge the accounts of the declared groups; expired ones may not.",
        _DEPLOY,
    ),
    "environment-job": Entry(
        _PEOPLE, "a user's job", "A job of one of the people, with the default account, has the same ids on its node.",
        "see the message; `id NAME` on both nodes and `sacctmgr show association user=NAME` show what they know",
    ),
    "environment-installed": Entry(
        _COMMANDS, "as deployed", "What the deploy installed for users is there as it was: files, packages, units.",
        "`deepopsctl deploy slurm environment` restores them; `deepopsctl plan` shows what", "as deployed",
    ),
    "environment-tools": Entry(
        _COMMANDS, "commands", "Users find sq, seff, why, partition-stats and the tools of guides in their PATH.",
        "`deepopsctl deploy environment` installs them",
    ),
    "environment-directory": Entry(
        _PEOPLE, "directory service", "The servers of the directory service answer by TLS with the declared authority.",
        "compare `ca` and `servers` of people.yml with `openssl s_client -connect SERVER:636`",
    ),
    "environment-directory-lookup": Entry(
        _PEOPLE, "directory's groups", "The node finds each group that `directory` of people.yml names.",
        "`journalctl -u sssd`: may bind_dn read the group, and is its id within `ids`?",
    ),
    "environment-directory-ids": Entry(
        _PEOPLE, "directory's ids", "Neither people.yml nor the node's own files have a name or id of the directory.",
        "give people.yml, or the node's account, another name or id",
    ),
    "environment-mail": Entry(
        _COMMANDS, "mail about jobs", "No mail about a job waits for more than 20 minutes on a controller.",
        "`journalctl -u deepops-job-mail`, `mailq`, and the relay: job_mail_relay in settings.yml",
    ),
    "environment-queue": Entry(
        _COMMANDS, "sq", "`sq` and `partition-stats` answer a user.", "is slurmctld up? `deepopsctl validate smoke`",
    ),
    "environment-guides": Entry(
        _COMMANDS, "commands of guides", "What guides of other clusters have users type works in a login shell.",
        "the message names the commands; docs/users/from-other-clusters.md has the list", "guides",
    ),
    "environment-attach": Entry(
        _COMMANDS, "attach and cancel", "`srun --jobid=JOB --overlap` runs in a job that runs, and scancel ends it.",
        "`deepopsctl validate smoke` has more about jobs and steps",
    ),
    "environment-login-keys": Entry(
        _LOGIN, "login by key", "sshd on login nodes refuses passwords.",
        "`deepopsctl deploy environment` writes 01-deepopsctl-logins.conf; `login_node_keys_only: false` accepts them",
    ),
    "environment-login-message": Entry(
        _LOGIN, "message of the day", "The state of the cluster that users read at login is not old.",
        "`systemctl status deepops-login-message.timer` and `journalctl -u deepops-login-message` on the login node",
    ),
    "environment-modules": Entry(
        _MODULES, "modules", "`module avail` lists `modules_software`, and every version installed by a deploy loads.",
        "`deepopsctl deploy environment` writes modules; is the directory of a declared one on this node?",
    ),
    "environment-module-shells": Entry(
        _MODULES, "shells", "`module load` works in a login shell, another interactive one, a script, and zsh.",
        "`deepopsctl deploy environment` installs the module system; does a file of the site's own replace `module`?",
    ),
    "environment-module-jobs": Entry(
        _MODULES, "jobs", "`module load` works in a batch job with `--export=NONE`, and in its step.",
        "has every compute node /etc/profile.d/deepopsctl-modules.sh? `deepopsctl deploy environment`",
    ),
    "environment-wheels": Entry(
        _MODULES, "wheels", "Each wheel of the wheelhouse can be read, and has the hash of wheels.sha256.",
        "delete the file and run `deepopsctl wheels add` again; a new content on purpose: docs/deploy/wheels.md",
    ),
    "environment-easybuild": Entry(
        _MODULES, "EasyBuild", "A user builds a package with EasyBuild, and loads its module.",
        "the message has the end of the output; `module load EasyBuild && eb --show-config`", "EasyBuild",
    ),
    "environment-spack": Entry(
        _MODULES, "Spack", "A user finds Spack by its module.", "`deepopsctl deploy environment` clones it", "Spack",
    ),
    "environment-eessi": Entry(
        _MODULES, "EESSI", "The software of EESSI is mounted.",
        "`cvmfs_config probe software.eessi.io` on the node; site_software_cvmfs_proxy", "EESSI",
    ),
    "environment-spaces": Entry(
        _FILES, "spaces", "A person's login shell has the variables and links of spaces, and can write there.",
        "`deepopsctl deploy storage environment` mounts the file systems and makes the directories", "spaces",
    ),
    "environment-space-owners": Entry(
        _FILES, "owners of spaces", "The directories of people and groups are there, and theirs.",
        "`deepopsctl deploy environment` makes those that are missing; what belongs to another user is yours to move",
        "owners",
    ),
    "environment-proxy-allowed": Entry(
        _NETWORK, "allowed host", "A user reaches an allowed host by the proxy that the module httpproxy sets.",
        "has the proxy's node a way out and a name server? /var/log/squid/access.log there has each request",
        "allowed host",
    ),
    "environment-proxy-refused": Entry(
        _NETWORK, "refused host", "The proxy refuses another host, and knows which user asked for it.",
        "`deepopsctl deploy environment`; is port 113 of the nodes open for the proxy?", "refused host",
    ),
    "environment-serial": Entry(
        _EXAMPLES, "serial", "serial.sh runs on one core.", _OUTPUT,
    ),
    "environment-multi-core": Entry(
        _EXAMPLES, "several cores", "multi-core.sh and its step have the cores that they ask for.", _OUTPUT,
    ),
    "environment-gpu": Entry(
        _EXAMPLES, "GPU", "gpu.sh has one GPU.", "`deepopsctl validate smoke` has more about GPUs of jobs",
    ),
    "environment-array": Entry(
        _EXAMPLES, "array", "Each task of array.sh ran, with its own parameter.", _OUTPUT,
    ),
    "environment-chain": Entry(
        _EXAMPLES, "chain", "The second job of chain.sh ran after the first, on its data.", _OUTPUT,
    ),
    "environment-staging": Entry(
        _EXAMPLES, "staging", "staging.sh had an archive on the node's own disk, and its result came back.", _OUTPUT,
    ),
    "environment-checkpoint": Entry(
        _EXAMPLES, "checkpoint", "checkpoint.sh got its signal, was requeued and continued from its checkpoint.",
        "may jobs be requeued, and do users read what jobs write in their homes? `scontrol show job`, slurmctld's log",
    ),
    "environment-farming": Entry(
        _EXAMPLES, "many cases", "farming.sh ran all its cases by GNU parallel, and its log has them.",
        "`deepopsctl deploy environment` installs GNU parallel",
    ),
}  # fmt: skip
PER_NODE = frozenset({
    "environment-ids", "environment-groups", "environment-keys", "environment-expiry", "environment-homes",
    "environment-directory", "environment-directory-lookup", "environment-directory-ids",
    "environment-tools", "environment-mail", "environment-queue", "environment-spaces",
    "environment-modules", "environment-module-shells", "environment-proxy-allowed", "environment-proxy-refused",
    "environment-guides", "environment-easybuild", "environment-spack", "environment-eessi",
    "environment-login-keys", "environment-login-message",
})  # fmt: skip
