"""Whether users build with EasyBuild, and find Spack and EESSI: in a login shell, without the internet."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..._shared import command
from ..._shared.checks import FAIL, PASS, Check, one_line
from .checks import check

EASYBUILD, SPACK, EESSI = "environment-easybuild", "environment-spack", "environment-eessi"
LIMIT_S = 600
# what a user does first: a package of one file, built into the user's own directory, and loaded
_BUILD = """\
home=$(mktemp -d) || exit 9
trap 'rm -rf -- "$home"' EXIT
cd "$home" && export HOME="$home" && mkdir hello && echo 'echo built' > hello/hello && chmod 755 hello/hello || exit 9
tar czf hello-1.0.tar.gz hello || exit 9
cat > hello-1.0.eb <<END
easyblock = "Tarball"
name = "hello"
version = "1.0"
homepage = "https://example.com"
description = "Example of validate environment"
toolchain = SYSTEM
sources = ["hello-1.0.tar.gz"]
sanity_check_paths = {"files": ["hello"], "dirs": []}
moduleclass = "tools"
END
module load EasyBuild && eb --version && eb hello-1.0.eb --prefix="$home/eb" --sourcepath=. --tmpdir="$home" || exit 9
module use "$home/eb/modules/all" && module load hello && "$EBROOTHELLO/hello"
"""
# check -> what is typed, and what the output has to end with ('' for anything)
TRIALS: dict[str, tuple[str, str]] = {
    EASYBUILD: (_BUILD, "built"),
    SPACK: ("module load Spack && spack --version", ""),
    EESSI: ("ls /cvmfs/software.eessi.io/versions", ""),
}


def verify_software(node: str, start: Sequence[str], switched_on: Collection[str]) -> list[Check]:
    """One check for each that is switched on; `start` is a login shell that takes a text."""
    return [_trial(node, start, name, *TRIALS[name]) for name in TRIALS if name in switched_on]


def _trial(node: str, start: Sequence[str], name: str, text: str, end: str) -> Check:
    answer = command.run([*start, text], LIMIT_S)
    if answer.ok and answer.output.strip().endswith(end):
        return check(name, node, PASS, "works", "works")
    # the last lines have the reason
    message = one_line((answer.errors.strip() or answer.output.strip())[-300:]) or answer.failure
    return check(name, node, FAIL, "failed", "works", message=message)
