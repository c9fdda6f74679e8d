"""What to do about the failures that everybody meets; modules of ours say it themselves."""

from __future__ import annotations

import re

# first match wins: the narrow ones stand before the wide ones
_HINTS = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED|host key .* has changed", "the node was reinstalled, or is not the one it "
     "was: make sure, then remove its line from known_hosts and run `deepopsctl ssh setup`"),
    (r"Host key verification failed|No .* host key is known for", "run `deepopsctl ssh setup`: it pins the nodes' host keys"),
    (r"Permission denied \(|Invalid/incorrect (username/)?password|Authentication fail", "run `deepopsctl ssh setup`, or give "
     "the login password with -k"),
    (r"Could not resolve hostname|Name or service not known", "give the node an address in cluster.yml, or make its name "
     "resolve on this machine"),
    (r"Connection timed out|Operation timed out|No route to host|Network is unreachable", "see whether the node is up and "
     "its address in cluster.yml is right; a firewall may drop port 22"),
    (r"Connection refused", "the node is up, but no SSH server answers: is sshd running, is the port right?"),
    (r"Missing sudo password|a password is required|password is required", "give the sudo password with -K"),
    (r"Incorrect sudo password|Sorry, try again|incorrect password attempt", "the sudo password was refused: try again with -K"),
    (r"is not in the sudoers file|not allowed to execute", "the login user needs sudo rights on the nodes; name another one with "
     "-u or in cluster.yml"),
    (r"Could not get lock|Unable to acquire the dpkg|dpkg frontend lock|Failed to lock apt", "another package tool runs on the "
     "node (unattended upgrades?): wait for it, then deploy again"),
    (r"dpkg was interrupted", "run `dpkg --configure -a` on the node, then deploy again"),
    (r"No space left on device|Disk quota exceeded|enough free space", "make room on the node: `df -h` shows where"),
    (r"Read-only file system", "the node's file system is read-only: see its kernel log (`dmesg`)"),
    (r"Unable to locate package|No package matching|has no installation candidate", "see the node's package sources; "
     "`apt-get update` must work there"),
    (r"Failed to fetch|Temporary failure resolving|Could not resolve '", "the node can't reach its package mirror: see its proxy, "
     "DNS and sources.list"),
    (r"python3?: (command )?not found|/usr/bin/python3: (not found|No such file)|No such file or directory.*python",
     "install python3 on the node"),
    (r"Attempting to decrypt but no vault secrets|Decryption failed", "the secrets were encrypted with another password: see "
     ".vault-password in the cluster directory"),
    (r"Timeout \(\d+s\) waiting for privilege escalation prompt", "sudo is slow or asks something: try `sudo -n true` on the node"),
)  # fmt: skip
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), hint) for pattern, hint in _HINTS)


def hint_for(message: str) -> str:
    """What to do about a well-known failure; empty where we don't know better than the message."""
    return next((hint for pattern, hint in _COMPILED if pattern.search(message)), "")
