"""Every check of the doctor by name: title, what it verifies, advice."""

from __future__ import annotations

from deepopsctl.checks.catalogue.entry import Entry

SUITE = "doctor"
_HERE, _NODES, _SOFTWARE, _SIZE, _COMPARED, _GPUS = (
    "This machine", "Reaching the nodes", "Software", "Resources", "Nodes compared", "GPUs",
)  # fmt: skip

DOCTOR = {
    "control-python": Entry(
        _HERE, "Python", "deepopsctl runs under a Python that it was tested with.",
        "create the virtual environment again with a Python of that range",
    ),
    "control-packages": Entry(
        _HERE, "Ansible", "ansible-core and ansible-runner are in the range that deepopsctl was tested with.",
        "in deepopsctl's virtual environment: `pip install --upgrade deepopsctl`",
    ),
    "control-ssh": Entry(
        _HERE, "ssh", "There is an ssh client.",
        "install openssh-client (Debian, Ubuntu) or openssh-clients (RHEL, Rocky)",
    ),
    "control-disk": Entry(
        _HERE, "disk space", "There is room for run directories.",
        "free disk space where the cluster directory is; old runs in its runs/ may be removed",
    ),
    "control-files": Entry(
        _HERE, "private files", "No other user may read keys, passwords and runs.", "`chmod go= FILE` for each of them",
    ),
    "control-vault": Entry(
        _HERE, "secrets", "The vault's password opens the cluster's secrets.",
        "restore the .vault-password of this cluster, or set $ANSIBLE_VAULT_PASSWORD_FILE",
    ),
    "control-clock": Entry(
        _HERE, "clock", "This machine's clock is not the one that is wrong.",
        "set this machine's clock, then run again",
    ),
    "reachable": Entry(
        _NODES, "reachable", "The node answers over SSH, and the login works.",
        "is the node up, and its address in cluster.yml right?",
    ),
    "examined": Entry(
        _NODES, "could be examined", "The facts of the node could be read.",
        "see the message; the whole log: `deepopsctl runs show`",
    ),
    "python": Entry(
        _NODES, "Python", "The node has a Python that Ansible's modules run under.",
        "install python3 (/usr/bin/python3), or set ansible_python_interpreter",
    ),
    "sudo": Entry(
        _NODES, "sudo", "The cluster's user may do everything with sudo.",
        "let the user use sudo there (group sudo or wheel), or name another one in cluster.yml",
    ),
    "login-keys": Entry(
        _NODES, "keys of the login", "Only root can add keys of the user that deploys, and its home is on the node.",
        "give the user a home on the node's own disk, or name another user (docs/deploy/ssh.md)",
    ),
    "hostname": Entry(
        _NODES, "hostname", "The hostname is the node's name in cluster.yml.",
        "compare the addresses in cluster.yml with the nodes: two may be swapped",
    ),
    "machine-id": Entry(
        _NODES, "machine id", "No two nodes are copies of each other, or the same host.",
        "on a copy: `rm /etc/machine-id && systemd-machine-id-setup`, then reboot; new SSH host keys as well",
    ),
    "addresses": Entry(
        _NODES, "addresses", "No two nodes have the same address.",
        "give one of the nodes another address; behind one address only one of them answers",
    ),
    "names": Entry(
        _NODES, "names", "Every node's name means the same host on every node, and its address has no other name.",
        "correct /etc/hosts or DNS; deepopsctl adds its entries to /etc/hosts after existing lines",
    ),
    "mtu": Entry(
        _NODES, "MTU", "All nodes of a network send packets of the same size.",
        "set the MTU of the interface: with different ones large messages hang where small ones pass",
    ),
    "clock-offset": Entry(
        _NODES, "clock", "The node's clock agrees with this machine's.",
        "see `timedatectl` on the node; munge refuses credentials that are 300 s old",
    ),
    "os": Entry(
        _SOFTWARE, "distribution", "deepopsctl was tested on the node's distribution and version.",
        "install one of the listed distributions; similar ones may work",
    ),
    "package-lock": Entry(
        _SOFTWARE, "package manager", "No other program installs packages now.",
        "wait for it (unattended upgrades?); a deploy waits for up to five minutes",
    ),
    "packages-broken": Entry(
        _SOFTWARE, "packages", "No package is half-installed.",
        "`dpkg --configure -a && apt-get -f install` on the node shows why it was not finished",
    ),
    "restarts": Entry(
        _SOFTWARE, "restart guard", "Nothing but deepopsctl restarts or replaces the cluster's daemons under jobs.",
        "remove it, or leave these daemons out of it; after a change by hand `deepopsctl deploy slurm` configures "
        "needrestart, unattended-upgrades and apt's holds again (docs/operate/upgrade-os.md)",
    ),
    "repositories": Entry(
        _SOFTWARE, "outside repositories", "The node reaches the repositories that a deploy would add to it.",
        "allow the access (proxy: https_proxy in /etc/environment), set a mirror, or disable what comes from there; "
        "see `docs/reference/settings.md`",
    ),
    "time-service": Entry(
        _SOFTWARE, "time service", "One daemon keeps the node's clock right.",
        "see `chronyc sources` and `systemctl status chrony` on the node",
    ),
    "ports": Entry(
        _SOFTWARE, "ports", "The ports of Slurm's and MariaDB's daemons are free, or theirs.",
        "stop the program, or give it another port",
    ),
    "firewall": Entry(
        _SOFTWARE, "firewall", "No firewall stands between the nodes.",
        "let the nodes reach each other on all ports (srun uses any): put their network into a trusted zone",
    ),
    "foreign-slurm": Entry(
        _SOFTWARE, "foreign Slurm", "There is no Slurm that deepopsctl did not install.",
        "to keep it: `deepopsctl takeover` before the first deploy, which overwrites it; otherwise remove it",
    ),
    "plugins": Entry(
        _SOFTWARE, "plugins of jobs", "The plugins of plugstack.conf (pyxis) were built for the Slurm that is there.",
        "build it for this Slurm, or make its line in slurm_plugstack `optional` (docs/deploy/spank.md)",
    ),
    "slurm-needs": Entry(
        _SOFTWARE, "needs of Slurm", "The node has the programs, plugins, directories and devices of Slurm's settings.",
        "install it there, or correct slurm_config in settings.yml or the node in cluster.yml: Slurm drains a node "
        "whose prolog is missing",
    ),
    "security": Entry(
        _SOFTWARE, "vulnerabilities", "The installed Slurm and munge have no vulnerability that this release knows of.",
        "install the distribution's security updates for them, on drained nodes first, or a newer release of Slurm",
    ),
    "storage-rights": Entry(
        _SOFTWARE, "shared storage rights", "What other nodes write brings no setuid programs and devices here.",
        "`deepopsctl deploy storage` does it for what cluster.yml mounts, unless an entry has `options: [suid]`; for "
        "other mounts and exports: nosuid,nodev in /etc/fstab, and `mount -o remount,nosuid,nodev PATH`",
    ),
    "database": Entry(
        _SOFTWARE, "accounting database", "MariaDB has the settings that slurmdbd needs, for this machine only.",
        "`deepopsctl deploy slurm` sets them; where it did: `mariadbd --print-defaults` shows what a later file says; "
        "on a server of others: see docs/deploy/accounting-database.md",
    ),
    "disk": Entry(
        _SIZE, "disk space", "There is room on /, /var and /tmp, and they can be written to.",
        "free disk space: see `df -h / /var /tmp` and `df -i` on the node; if it is read-only: see `dmesg`",
    ),
    "memory": Entry(
        _SIZE, "memory", "The node has the memory that Slurm is configured with.",
        "if cluster.yml has RealMemory, correct it; if the hardware was changed, delete its line in hardware.yml and "
        "deploy; if not, look for a failed DIMM",
    ),
    "cpus": Entry(
        _SIZE, "CPUs", "The node has the CPUs that Slurm is configured with.",
        "if the hardware was changed, delete its line in hardware.yml and deploy; if not, look for a failed part",
    ),
    "cgroup": Entry(
        _SIZE, "cgroups", "Slurm can confine jobs to their cores, memory and devices.",
        "boot the node with a writable cgroup v2 tree; `slurm_confinement: none` leaves all nodes' jobs unconfined",
    ),
    "user-ids": Entry(
        _COMPARED, "user ids", "Local accounts have the same user and group id on all nodes.",
        "give the account one id everywhere (usermod --uid, groupmod --gid), then chown its files: jobs run by id",
    ),
    "kernel": Entry(
        _COMPARED, "kernel", "The nodes of a partition run the same kernel.",
        "install one version and reboot: jobs on several nodes may behave differently",
    ),
    "gpu-driver": Entry(
        _COMPARED, "NVIDIA driver", "The GPU nodes of a partition run the same driver.", "install one version",
    ),
    "gpus": Entry(
        _GPUS, "GPUs on the PCI bus", "The node has as many GPUs as cluster.yml declares.",
        "compare `gpus:` in cluster.yml with `lspci -d 10de:` on the node; a GPU that fell off the bus may come back "
        "after a cold start",
    ),
    "gpu-model": Entry(
        _GPUS, "GPU model", "The GPUs are of the type that cluster.yml declares.",
        "correct `gpus:` in cluster.yml, or the nodes it stands for",
    ),
    "gpu-modules": Entry(
        _GPUS, "GPU kernel modules", "The kernel modules that a deploy loads at every start are loaded.",
        "`modprobe NAME` on the node says why not, `dkms status` what was built; `deepopsctl deploy nvidia` loads them",
    ),
    "secure-boot": Entry(
        _GPUS, "Secure Boot", "The firmware lets an NVIDIA driver load.",
        "turn Secure Boot off, or sign the driver with a key that the firmware knows (`mokutil --import`)",
    ),
}  # fmt: skip
