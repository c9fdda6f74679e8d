"""Python wheels unpacked side by side into one folder: libraries for one program, and for nobody else's Python."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import zipfile

# what a program needs at run time, and the licences that go with it
KEPT = (".py", ".so", ".typed", "LICENSE", "METADATA")


def wheel_for(library, architecture):
    """The hash and platform of a library's wheel for a machine's processor; those without machine code have one."""
    return library["wheels"].get("any") or library["wheels"].get(architecture)


def sha256_of(path):
    """A file's hash, whatever its size."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for chunk in iter(lambda: stream.read(2**20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def check(path, sha256):
    """Raises ValueError for another wheel than the pinned one."""
    if sha256_of(path) != sha256:
        raise ValueError("%s: not the wheel that is pinned" % os.path.basename(path))


@contextlib.contextmanager
def replaced(directory):
    """A folder to fill, for everybody to read. It becomes `folder` at the end; that is as it was where one fails."""
    parent = os.path.dirname(directory)
    os.makedirs(parent, mode=0o755, exist_ok=True)
    made = tempfile.mkdtemp(dir=parent, prefix=".new-")
    try:
        yield made
        for place, directories, names in os.walk(made):
            for name in directories:
                os.chmod(os.path.join(place, name), 0o755)  # noqa: S103 (programs of any user read it)
            for name in names:
                os.chmod(os.path.join(place, name), 0o644)
        os.chmod(made, 0o755)  # noqa: S103 (programs of any user read it)
        shutil.rmtree(directory, ignore_errors=True)
        os.rename(made, directory)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def unpack(directory, wheels):
    """All wheels, {path: sha256}, or none."""
    with replaced(directory) as made:
        for path, sha256 in sorted(wheels.items()):
            extract(path, sha256, made)


def extract(path, sha256, directory):
    """What is kept of one wheel; another wheel, and a name that leads out of the folder, are errors."""
    check(path, sha256)
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.startswith("/") or ".." in member.split("/"):
                raise ValueError("%s has a file %s" % (os.path.basename(path), member))
            if member.endswith(KEPT) and not member.endswith("/"):
                archive.extract(member, directory)


def files_in(directory):
    """Paths of all files below it."""
    paths = [os.path.join(place, name) for place, _, names in os.walk(directory) for name in names]
    return sorted(path for path in paths if not path.endswith(".pyc"))
