"""cluster.yml as a file that changes together with the nodes, and is restored if they could not change."""

from __future__ import annotations

import stat
from dataclasses import dataclass

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.files import write_atomic
from deepopsctl.model.cluster import Cluster


@dataclass(slots=True)
class SpecFile:
    """The original text, and the edits written since."""

    directory: ClusterDir
    text: str
    written: bool = False

    @classmethod
    def open(cls, directory: ClusterDir) -> SpecFile:
        """Read it with its own line ends; it was validated before."""
        return cls(directory, directory.spec.read_bytes().decode("utf-8"))

    def write(self, text: str) -> Cluster:
        """Write cluster.yml atomically and update the inventory; a text that does not parse is not written."""
        cluster = parse_spec(text.removeprefix("\ufeff").replace("\r\n", "\n"), self.directory.spec.name)
        if text != self.text or self.written:
            self._store(text)
            self.written = True
        self.directory.refresh_inventory(cluster)
        return cluster

    def restore(self) -> bool:
        """Restore the original text; returns whether anything had been written."""
        if not self.written:
            return False
        self._store(self.text)
        self.written = False
        self.directory.refresh_inventory(self.directory.cluster())
        return True

    def _store(self, text: str) -> None:
        path = self.directory.spec
        write_atomic(path, text, stat.S_IMODE(path.stat().st_mode))
