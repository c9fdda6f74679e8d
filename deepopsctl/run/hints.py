"""Hints for common failures of Ansible and ssh; deepopsctl's modules have their own hints."""

from __future__ import annotations

import re

# first match wins: the narrow ones stand before the wide ones
_HINTS = (
    (
        r"sudo-rs-with-a-password|sudo-rs asks for a password",
        (
            "Ansible can't give sudo-rs a password: install the classic sudo next to it (`sudo.ws`, Ubuntu's package "
            "sudo), or let the user use sudo without one (NOPASSWD)"
        ),
    ),
    (
        r"Slurm can't confine jobs",
        (
            "start the node with a writable cgroup tree, or take it out of cluster.yml; `slurm_confinement: none` in "
            "settings.yml leaves the jobs of all nodes unconfined"
        ),
    ),
    (
        r"a Slurm is there that deepopsctl did not make",
        "to keep it, with its jobs and accounting: `deepopsctl takeover`; otherwise remove it from these nodes",
    ),
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|host key for .* has changed",
        (
            "the node was reinstalled or replaced: verify that, then accept its new key with "
            "`deepopsctl ssh setup --accept-new-keys NODE`"
        ),
    ),
    (
        r"Host key verification failed|No \S+ host key is known for",
        "run `deepopsctl ssh setup`: it pins the nodes' host keys",
    ),
    (
        # Ansible's message for both when a password is used
        r"SSH password instead of a key is not possible because Host Key checking",
        "the node's host key is not pinned, or has changed: `deepopsctl ssh setup` pins it or reports the change",
    ),
    (
        r"Permission denied \([a-z,-]+\)|Invalid/incorrect (username/)?password",
        "run `deepopsctl ssh setup`, or give the login password with -k",
    ),
    (
        r"Could not resolve hostname|Name or service not known",
        "give the node an address in cluster.yml, or make its name resolve on this machine",
    ),
    (
        r"Connection timed out|Operation timed out|No route to host|Network is unreachable",
        "is the node up, and its address in cluster.yml right? A firewall may drop SSH's port",
    ),
    (
        r"port \d+: Connection refused",
        "the node is up, but no SSH server answers: is sshd running, and the port right?",
    ),
    (
        r"ended before the task was sent",
        "is the node up, and sshd running there? check with `deepopsctl doctor`, then deploy again",
    ),
    (
        r"broke in the middle of the task|Connection (to \S+ closed|reset by)|Broken pipe|Timeout, server",
        "are the node and the network up? A running program may still finish there; the next deploy does the rest",
    ),
    (
        r"must have a tty to run sudo",
        "remove `Defaults requiretty` from /etc/sudoers and /etc/sudoers.d on the node (visudo)",
    ),
    (
        r"Incorrect (sudo|become) password|Sorry, try again|incorrect password attempt",
        "the sudo password was refused: try again with -K",
    ),
    (
        r"Missing sudo password|password is required|interactive authentication is required",
        "give the sudo password with -K",
    ),
    (
        r"is not in the sudoers file|is not allowed to (execute|run)",
        "the login user needs sudo rights on the nodes; -u USER or cluster.yml names another one",
    ),
    (
        r"waiting for privilege escalation",
        "sudo is slow or asks something else: run `sudo -n true` on the node",
    ),
    (
        r"Could not get lock|Unable to acquire the dpkg|dpkg frontend lock|Failed to lock apt",
        "another package tool runs on the node (unattended upgrades?): wait for it, then deploy again",
    ),
    (
        r"dpkg was interrupted",
        "run `dpkg --configure -a` on the node, then deploy again",
    ),
    (
        r"No space left on device|Disk quota exceeded|enough free space",
        "free disk space on the node: see `df -h`",
    ),
    (
        r"Read-only file system",
        "the node's file system is read-only: see its kernel log (`dmesg`)",
    ),
    (
        r"Unable to locate package|No package matching|has no installation candidate",
        "is the package in the node's package sources? `apt-get update` must work there",
    ),
    (
        r"Failed to fetch|Temporary failure resolving",
        "the node can't reach its package mirror: see its DNS, proxy and package sources",
    ),
    (
        r"module interpreter '.*' was not found|python3?(\.\d+)?'?: (command )?(not found|No such file)",
        "install python3 on the node (apt-get install python3), or set ansible_python_interpreter",
    ),
    (
        r"Decryption failed|no vault secrets were found",
        "the secrets were encrypted with another password than the one in .vault-password",
    ),
    (
        r"Module result deserialization failed",
        "something prints into the session: see the node's shell start files (.bashrc, profile.d)",
    ),
)
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), hint) for pattern, hint in _HINTS)


def hint_for(message: str) -> str:
    """The hint for a well-known failure; empty for others."""
    return next((hint for pattern, hint in _COMPILED if pattern.search(message)), "")
