"""A signed apt repository, made here, served by a node: apt, dpkg and signatures are real, the packages are stubs."""

from __future__ import annotations

import gzip
import hashlib
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.harness import PATIENCE_S, LabCluster

PORT = 8088
SCRIPTS = ("DEBIAN/postinst", "DEBIAN/prerm")
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


@dataclass(frozen=True)
class Stub:
    """A package: text files that are executable where they are in a directory `bin` or `sbin`, and its own scripts."""

    name: str
    version: str
    depends: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    postinst: str = ""
    prerm: str = ""


class Signer:
    """A key of its own, in a directory of its own."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._gpg("--quick-generate-key", "Test <test@example.com>", "ed25519", "sign", "0")
        listed = self._gpg("--list-keys", "--with-colons").decode()
        self.fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))
        self.public = self._gpg("--armor", "--export")

    def _gpg(self, *arguments: str) -> bytes:
        common = ("gpg", "--homedir", str(self._home), "--batch", "--quiet", "--passphrase", "")
        return subprocess.run([*common, *arguments], check=True, capture_output=True, timeout=PATIENCE_S).stdout

    def clearsigned(self, path: Path) -> bytes:
        """A file with its signature, as apt's InRelease."""
        return self._gpg("--output", "-", "--clearsign", str(path))


@contextmanager
def signers(count: int) -> Iterator[list[Signer]]:
    """Keys, gone afterwards with the agents that hold them."""
    # a socket's path may not be long, and pytest's directories are
    homes = [Path(tempfile.mkdtemp(prefix="gpg-")) for _ in range(count)]
    try:
        yield [Signer(home) for home in homes]
    finally:
        for home in homes:
            subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False, timeout=PATIENCE_S)
            shutil.rmtree(home, ignore_errors=True)


def build(directory: Path, label: str, stubs: list[Stub], signer: Signer) -> None:
    """A flat repository in a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    index = "\n".join(_package(directory, stub) for stub in stubs).encode()
    (directory / "Packages").write_bytes(index)
    (directory / "Packages.gz").write_bytes(gzip.compress(index))
    sums = [
        f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}\n"
        for name in ("Packages", "Packages.gz")
        for data in [(directory / name).read_bytes()]
    ]
    head = f"Origin: NVIDIA\nLabel: {label}\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n"
    (directory / "Release").write_text(head + "".join(sums), encoding="utf-8")
    (directory / "InRelease").write_bytes(signer.clearsigned(directory / "Release"))


def build_suite(root: Path, suite: str, component: str, stubs: list[Stub], signer: Signer) -> None:
    """A repository with a suite and a component, as BeeGFS's."""
    part = Path(component) / f"binary-{ARCHITECTURE}" / "Packages"
    pool, directory = root / "pool", root / "dists" / suite
    for path in (pool, (directory / part).parent):
        path.mkdir(parents=True, exist_ok=True)
    index = "\n".join(_package(pool, stub) for stub in stubs).replace("Filename: ./", "Filename: pool/").encode()
    (directory / part).write_bytes(index)
    head = f"Suite: {suite}\nComponents: {component}\nArchitectures: {ARCHITECTURE}\n"
    head += f"Date: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n {hashlib.sha256(index).hexdigest()} {len(index)} {part}\n"
    (directory / "Release").write_text(head, encoding="utf-8")
    (directory / "InRelease").write_bytes(signer.clearsigned(directory / "Release"))


def _described(stub: Stub, control: str) -> dict[str, str]:
    scripts = dict(zip(SCRIPTS, (stub.postinst, stub.prerm), strict=True))
    return {"DEBIAN/control": control, **scripts, **stub.files}


def _package(directory: Path, stub: Stub) -> str:
    """Build a package; returns its entry of the index."""
    control = (
        f"Package: {stub.name}\nVersion: {stub.version}\nArchitecture: {ARCHITECTURE}\n"
        f"Maintainer: Test <test@example.com>\nDescription: stub\n"
        + (f"Depends: {stub.depends}\n" if stub.depends else "")
    )
    with tempfile.TemporaryDirectory() as made:
        tree = Path(made)
        tree.chmod(0o755)
        for name, text in _described(stub, control).items():
            if text:
                path = tree / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
                path.chmod(0o755 if name in SCRIPTS or "bin/" in name else 0o644)
        file = directory / f"{stub.name}_{stub.version}_{ARCHITECTURE}.deb"
        argv = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(file)]
        subprocess.run(argv, check=True, capture_output=True, timeout=PATIENCE_S)
    data = file.read_bytes()
    return f"{control}Filename: ./{file.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"


def serve(cluster: LabCluster, node: str, root: Path) -> str:
    """Put a directory on a node and have the node serve it; returns the address."""
    argv = ["podman", "cp", str(root), f"{cluster.name}-{node}:/srv/mirror"]
    subprocess.run(argv, check=True, capture_output=True, timeout=PATIENCE_S)
    start = "systemd-run --quiet --unit=mirror python3 -m http.server --directory /srv/mirror"
    cluster.root(node, f"{start} {PORT}")
    address = cluster.root(node, "hostname -I").split()[0]
    url = f"http://{address}:{PORT}"
    # it listens a moment later
    request = f"import urllib.request; urllib.request.urlopen('{url}/')"
    cluster.root(node, f'until python3 -c "{request}" 2>/dev/null; do sleep 0.2; done')
    return url
