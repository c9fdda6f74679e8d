"""One virtual machine in plain QEMU, reached by SSH through its user-mode network: nothing that could stay behind."""

from __future__ import annotations

import base64
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MEMORY_MB = 1024
# an emulated CPU on a busy computer
BOOT_S = 900
COMMAND_S = 300
SSH_PORT = 22


@dataclass(frozen=True)
class VirtualMachine:
    """A running machine; root has a key that was made for it."""

    directory: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def key(self) -> Path:
        """The private key that opens it."""
        return self.directory / "key"

    @property
    def ssh_options(self) -> tuple[str, ...]:
        """Options of ssh: this host's own files, nothing of the user's."""
        return (
            *("-F", "/dev/null", "-i", str(self.key), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"),
            *("-o", f"UserKnownHostsFile={self.directory}/known_hosts", "-o", "StrictHostKeyChecking=accept-new"),
            *("-o", "ConnectTimeout=120", "-o", "LogLevel=ERROR"),
        )

    def ssh(self, script: str, seconds: int = COMMAND_S) -> subprocess.CompletedProcess[str]:
        """Run a shell script as root."""
        argv = ["ssh", *self.ssh_options, "-p", str(self.port), "root@127.0.0.1", script]
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)

    def root(self, script: str) -> str:
        """The same, where it must succeed; its output."""
        done = self.ssh(script)
        assert done.returncode == 0, f"{script}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def console(self) -> str:
        """The end of what the machine wrote on its serial console."""
        return (self.directory / "console.log").read_text(encoding="utf-8", errors="replace")[-3000:]

    def wait_for_ssh(self) -> None:
        """Until root can log in; a QEMU that ended fails at once."""
        deadline = time.monotonic() + BOOT_S
        while (answer := self.ssh("true")).returncode != 0:
            assert self.process.poll() is None, f"QEMU ended with {self.process.returncode}: {self._log()}"
            assert time.monotonic() < deadline, f"no login after {BOOT_S} s: {answer.stderr}\n{self.console()}"
            time.sleep(1)

    def _log(self) -> str:
        return (self.directory / "qemu.log").read_text(encoding="utf-8", errors="replace")


@contextmanager
def booted(image: Path, directory: Path) -> Iterator[VirtualMachine]:
    """A machine on a copy-on-write disk over `image`; it ends with the block, or with this process."""
    disk, key = directory / "disk.qcow2", directory / "key"
    overlay = ("create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", str(image), str(disk))
    subprocess.run(["qemu-img", *overlay], check=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    port = _free_port()
    with (directory / "qemu.log").open("wb") as log:
        process = subprocess.Popen(
            _argv(disk, port, key.with_suffix(".pub").read_bytes(), directory / "console.log"),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        vm = VirtualMachine(directory, port, process)
        vm.wait_for_ssh()
        yield vm
    finally:
        process.kill()
        process.wait(timeout=60)


def _argv(disk: Path, port: int, public_key: bytes, console: Path) -> list[str]:
    # systemd writes it into root's authorized_keys: the image needs no key, and no two machines share one
    credential = f"io.systemd.credential.binary:ssh.authorized_keys.root={base64.b64encode(public_key).decode()}"
    return [
        *("setpriv", "--pdeathsig", "KILL", "--"),
        *("qemu-system-x86_64", "-cpu", "max", "-smp", "1", "-m", str(MEMORY_MB)),
        *("-display", "none", "-monitor", "none", "-serial", f"file:{console}"),
        *("-drive", f"file={disk},if=virtio,format=qcow2,cache=unsafe"),
        *("-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{port}-:{SSH_PORT}"),
        *("-device", "virtio-net-pci,netdev=net"),
        # the commas of QEMU's options are doubled where a value has one; base64 has none
        *("-smbios", f"type=11,value={credential}"),
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
