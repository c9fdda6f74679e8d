"""apt's sources: where else one is named, the key that signs it, and its package lists."""

from __future__ import annotations

import glob
import os
import re

from ansible.module_utils.urls import open_url
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    errors as node_errors,
    files as node_files,
    openpgp,
    packages_apt as node_packages,
    record as node_record,
)

MODE = 0o644
_SCHEME = re.compile(r"^\w+:(//)?")


class SourceError(node_errors.HintedError):
    """A source or its key can't be used."""


def is_the_key(data, fingerprint):
    """Whether a file has this key and no other."""
    try:
        return openpgp.fingerprints(data or b"") == [fingerprint]
    except ValueError:
        return False


def fetch_key(url, fingerprint, hint):
    """The key; raises SourceError where it can't be had or is another."""
    # urllib raises many kinds, Ansible's wrapper of it still others
    try:
        data = open_url(url, timeout=30).read()
    except Exception as error:
        raise SourceError("cannot fetch %s: %s" % (url, error), hint) from error
    if not is_the_key(data, fingerprint):
        raise SourceError(
            "%s is not the key with the fingerprint %s" % (url, fingerprint),
            "something between the node and the repository changes downloads; nothing was written",
        )
    return data


def ensure_key(noted, path, url, fingerprint, hint):
    """The key is there, and is the one that it should be; True where it was written."""
    ids, current = node_files.owner_ids("root", "root"), node_files.read(path)
    known = is_the_key(current, fingerprint)
    if known and not node_files.differs(path, current, ids, MODE):
        return False
    # fetched in check mode, too: a plan reports what a deploy could not fetch
    data = current if known else fetch_key(url, fingerprint, hint)
    if not noted.dry:
        node_files.write(path, data, ids, MODE, [])
    noted.did("file", path, "write", detail="fingerprint %s" % fingerprint, new=current is None)
    return True


def leave_out(module, error, *steps):
    """End a module whose source can't be used: the run goes on without it, and ends with a failure all the same."""
    for component, step in steps:
        node_record.save(component, step, "", {})
    module.warn(str(error))
    module.exit_json(changed=False, changes=[], deepops_left_out={"message": str(error), "hint": error.hint})


def named_elsewhere(uri, own, directory="/etc/apt"):
    """The first file but `own` whose sources have this address; '' where there is none.

    Two files that name one source with different keys make apt refuse all work.
    """
    for path in [os.path.join(directory, "sources.list")] + sorted(
        glob.glob(os.path.join(directory, "sources.list.d", "*"))
    ):
        read = {".list": _one_line_addresses, ".sources": _stanza_addresses}.get(os.path.splitext(path)[1])
        if path != own and read and _bare(uri) in [_bare(address) for address in read(node_files.text(path))]:
            return path
    return ""


def _bare(uri):
    return _SCHEME.sub("", uri).rstrip("/")


def _one_line_addresses(text):
    return re.findall(r"^deb\s+(?:\[[^]]*\]\s+)?(\S+)", text, re.MULTILINE)


def _stanza_addresses(text):
    for block in re.split(r"\n\s*\n", text):
        if re.search(r"^Enabled:\s*no\s*$", block, re.MULTILINE | re.IGNORECASE):
            continue
        for line in re.findall(r"^URIs:(.*(?:\n[ \t].*)*)", block, re.MULTILINE | re.IGNORECASE):
            yield from line.split()


def stanza(uri, suite, components, keyring):
    """A source as apt reads it."""
    lines = ["Types: deb", "URIs: %s" % uri, "Suites: %s" % suite]
    lines += ["Components: %s" % components] if components else []
    lines += ["Signed-By: %s" % keyring] if keyring else []
    return "".join("%s\n" % line for line in lines)


def refresh(path, lock_wait, before):
    """Fetch the package lists of one source file, and nothing else.

    Where any of it fails, puts back the files of before, {path: content or None}, and raises SourceError: with a source
    that can't be used, apt would refuse all other work as well.
    """
    options = [
        "Dir::Etc::sourcelist=%s" % path,
        "Dir::Etc::sourceparts=-",
        "APT::Get::List-Cleanup=0",
        # a signature that is wrong would be but a warning where there are lists of before
        "APT::Update::Error-Mode=any",
    ]
    try:
        node_packages.refresh([word for option in options for word in ("-o", option)], lock_wait)
    except node_packages.PackageError as error:
        for name, content in before.items():
            if content is not None:
                node_files.write(name, content, node_files.owner_ids("root", "root"), MODE, [])
            elif os.path.exists(name):
                os.unlink(name)
        raise SourceError(str(error), error.hint) from error


def has_lists(path):
    """Whether apt has the package lists of a source file; a file that is not there needs none."""
    only = ["-o", "Dir::Etc::sourcelist=%s" % path, "-o", "Dir::Etc::sourceparts=-"]
    asked = ["apt-get", "indextargets", "--format", "$(FILENAME)"] + only + ["Created-By: Packages"]
    return any(os.path.exists(name) for name in node_packages.output(asked).split())
