"""A search for a cluster's secrets wherever they could have got to: output, runs, nodes, process lists."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from deepopsctl.cluster.secrets import decrypt
from tests.lab.harness import PATIENCE_S, LabCluster
from tests.support.cluster import repeating

# Programs of the node's own would be found by their memory only: these are what is written and what `ps` shows.
PLACES = ("/etc", "/home", "/root", "/run", "/srv", "/tmp", "/usr/local", "/var/backups", "/var/lib/deepopsctl",
          "/var/lib/slurm", "/var/log", "/var/spool", "/var/tmp")  # fmt: skip
# how the text of every private key of OpenSSH begins
_ANY_SSH_KEY = b"b3BlbnNzaC1rZXkt"
_ON_NODE = r"""
import base64, json, os, stat, subprocess, sys
places, patterns = json.loads(PARAMETERS)
patterns = {name: [base64.b64decode(form) for form in forms] for name, forms in patterns.items()}
def holds(content):
    return sorted(name for name, forms in patterns.items() if any(form in content for form in forms))
found = {}
for place in places:
    for directory, _, names in os.walk(place):
        for path in (os.path.join(directory, name) for name in names):
            try:
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode) and status.st_size < 2**26:
                    with open(path, "rb") as stream:
                        names = holds(stream.read())
                    if names:
                        found[path] = [names, "%03o" % (status.st_mode & 0o777)]
            except OSError:
                pass
journal = subprocess.run(["journalctl", "--output=export"], stdout=subprocess.PIPE).stdout
if holds(journal):
    found["journal"] = [holds(journal), ""]
json.dump(found, sys.stdout)
"""


@dataclass
class Leaks:
    """The secrets of a cluster, and the output of commands that were watched."""

    lab: LabCluster
    extra: Mapping[str, str] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    _known: dict[str, list[bytes]] = field(default_factory=dict)

    def forms(self) -> dict[str, list[bytes]]:
        """Each secret in every form in which it could be written; those of earlier calls as well."""
        password = self.lab.directory / ".vault-password"
        vault = self.lab.directory / "inventory/group_vars/all/secrets.yml"
        variables = decrypt(vault.read_text("utf-8"), password.read_bytes().strip())
        secrets = {name: value.encode() for name, value in (*variables.items(), *self.extra.items())}
        secrets["raw munge key"] = base64.b64decode(variables["munge_key"])
        secrets["vault password"] = password.read_bytes().strip()
        secrets["ssh key"] = (self.lab.directory / "ssh/id_ed25519").read_bytes()
        for name, secret in secrets.items():
            # by its value as well: one that is replaced is still to be found nowhere
            self._known[f"{name} {hashlib.sha256(secret).hexdigest()[:6]}"] = forms_of(secret)
        return dict(self._known)

    def run(self, *arguments: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
        """Run deepopsctl with -vvv, and search its output and all processes meanwhile."""
        with self._processes_watched():
            done = self.lab.deepopsctl(*arguments, "-vvv", ok=ok)
        self.note(f"the output of {arguments[0]}", (done.stdout + done.stderr).encode())
        return done

    def note(self, where: str, content: bytes) -> None:
        """Search for secrets in something, and remember where they were."""
        self.seen += [f"{where} has the {name}" for name in holding(content, self.forms())]

    def in_cluster_directory(self) -> None:
        """Search every file of the directory, except those that are there to hold secrets."""
        for path in self.lab.directory.rglob("*"):
            if path.is_file() and path.name != ".vault-password" and path.parent.name != "ssh":
                self.note(str(path), path.read_bytes())

    def on_node(self, node: str) -> dict[str, str]:
        """Files of a node that hold secrets, with their modes; its journal would be one of them."""
        forms = {
            name: [base64.b64encode(form).decode() for form in encodings] for name, encodings in self.forms().items()
        }
        parameters = json.dumps(json.dumps([PLACES, forms]))
        done = subprocess.run(
            ["podman", "exec", "-i", f"{self.lab.name}-{node}", "python3", "-"],
            input=f"PARAMETERS = {parameters}\n{_ON_NODE}",
            capture_output=True, text=True, timeout=PATIENCE_S, check=True,
        )  # fmt: skip
        return {path: mode for path, (_names, mode) in json.loads(done.stdout).items()}

    @contextmanager
    def _processes_watched(self) -> Iterator[None]:
        """Search arguments and environments of all processes, on the nodes too: containers are processes here."""
        known = self.forms()

        def search_processes() -> None:
            for name, content in processes():
                self.seen += [f"{name} has the {secret}" for secret in holding(content, known)]

        with repeating(search_processes, 0.1):
            yield


def forms_of(secret: bytes) -> list[bytes]:
    """A secret as it is, in base64 at each of the three places it may have in a text, in hex, with escaped ends."""
    forms = [secret, secret.hex().encode(), json.dumps(secret.decode("latin-1")).strip('"').encode()]
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + secret).rstrip(b"=")
        # what the bytes around it would change is cut off
        forms.append(encoded[-(-before * 8 // 6) : len(encoded) - 1])
    if b"\n" in secret.strip():
        # a private key: any of its lines would be enough
        forms += [line for line in secret.splitlines() if len(line) > 40 and not line.startswith(_ANY_SSH_KEY)]
    return list(dict.fromkeys(forms))


def holding(content: bytes, known: Mapping[str, Iterable[bytes]]) -> list[str]:
    """The secrets that are in something."""
    return [name for name, forms in known.items() if any(form in content for form in forms)]


def processes() -> Iterator[tuple[str, bytes]]:
    """Arguments and environment of all processes of this host."""
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            with suppress(OSError):
                arguments = (directory / "cmdline").read_bytes()
                title = arguments.replace(b"\0", b" ")[:60].decode(errors="replace")
                yield f"process {title}", arguments + b"\0" + (directory / "environ").read_bytes()
