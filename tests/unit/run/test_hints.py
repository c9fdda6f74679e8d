"""The messages are real ones: ssh, sudo, apt and Ansible said them."""

from __future__ import annotations

import pytest

from deepopsctl.run.hints import hint_for

REAL = [
    (("No ED25519 host key is known for 10.89.9.101 and you have requested strict checking.\n"
     "Host key verification failed."), "ssh setup"),
    ("Host key for 10.89.9.101 has changed and you have requested strict checking.\nHost key verification failed.",
     "--accept-new-keys"),
    ("ubuntu@10.89.9.101: Permission denied (publickey,password).", "ssh setup"),
    ("ssh: connect to host 10.89.9.77 port 22: No route to host", "is the node up"),
    ("ssh: connect to host 192.0.2.1 port 22: Connection timed out", "is the node up"),
    ("ssh: connect to host 10.89.9.101 port 1: Connection refused", "sshd"),
    ("ssh: Could not resolve hostname no.such.host.invalid: Name or service not known", "address in cluster.yml"),
    (("Using a SSH password instead of a key is not possible because Host Key checking is enabled. Please add this "
     "host's fingerprint to your known_hosts file to manage this host."), "not pinned, or has changed"),
    ("the connection to 10.89.8.102 ended before the task was sent", "sshd running there"),
    ("the connection to 10.89.8.102 broke in the middle of the task", "the next deploy does the rest"),
    ("Missing sudo password", "-K"),
    ("Incorrect sudo password", "refused"),
    ("Module result deserialization failed: No start of json char found: nosudo is not in the sudoers file.",
     "sudo rights"),
    ("E: Could not get lock /var/lib/apt/lists/lock. It is held by process 287 (python3)", "another package tool"),
    ("Failed to replace '/small/x': [Errno 28] No space left on device: b'/small/.ansible_tmp55m9juu3x'", "free disk"),
    ("The module interpreter '/usr/bin/python9' was not found.: /bin/sh: 1: /usr/bin/python9: not found", "python3"),
    ("/bin/sh: 1: /usr/bin/python3: not found", "apt-get install python3"),
    ("bash: line 1: python3: command not found", "apt-get install python3"),
    ("sudo: python3: command not found", "apt-get install python3"),
    ("/usr/bin/env: 'python3': No such file or directory", "apt-get install python3"),
    ("sudo: sorry, you must have a tty to run sudo", "Defaults requiretty"),
    ("Module result deserialization failed: No start of json char found: sudo: sorry, you must have a tty to run sudo",
     "Defaults requiretty"),
    ("Decryption failed (no vault secrets were found that could decrypt).", ".vault-password"),
    ("No package matching 'nosuchpackage' is available", "package sources"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "word"), REAL)
def test_a_well_known_failure_says_what_to_do(message: str, word: str) -> None:
    assert word in hint_for(message)


@pytest.mark.parametrize("message", ["", "non-zero return code", "slurm.conf:12: unknown key Foo"])
def test_there_is_no_hint_where_the_message_says_it_all(message: str) -> None:
    assert hint_for(message) == ""
