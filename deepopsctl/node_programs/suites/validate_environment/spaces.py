"""Whether a person finds their directories: variables, links and a file written, in a login shell of theirs."""

from __future__ import annotations

import pwd
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..._shared import as_user, command, identities
from ..._shared.checks import FAIL, PASS, Check, one_line
from .checks import check, skip

SPACES = "environment-spaces"
LIMIT_S = 60
_MARK = "deepopsctl-space"
# prints NAME, whether a file could be written there, and whether the link leads there; then the value
_TRY = """\
value=${{{variable}-}}
written=no linked=none
if file=$(mktemp "$value/.deepopsctl-XXXXXX" 2>/dev/null); then written=yes; rm -f -- "$file"; fi
if [ -n {link} ]; then linked=no; [ ! "$value" -ef "$HOME"/{link} ] || linked=yes; fi
printf '%s %s %s %s %s\\n' {mark} {variable} "$written" "$linked" "$value"
"""

Entry = Mapping[str, Any]


def verify_spaces(node: str, people: Sequence[Entry], spaces: Sequence[Entry]) -> list[Check]:
    """One check, as the first person whose account is open; none where the node has no spaces."""
    person = first_active(people)
    if not spaces or person is None:
        return []
    name = person["name"]
    try:
        pwd.getpwnam(name)
    except KeyError:
        return [skip(SPACES, node, f"there is no user {name} on this node")]
    argv = [*as_user.login_shell(name, LIMIT_S), script(person, spaces)]
    result = command.run(argv, LIMIT_S + as_user.GRACE_S)
    if not result.ok:
        return [check(SPACES, node, FAIL, "no answer", f"{len(spaces)} spaces", message=result.failure)]
    return [evaluate(node, person, spaces, result.output)]


def first_active(people: Sequence[Entry]) -> Any:
    """The first person whose account has not expired; None without one."""
    today = identities.today()
    return next((each for each in people if not identities.is_over(each, "expires", today)), None)


def script(person: Entry, spaces: Sequence[Entry]) -> str:
    """What is run as the person."""
    return "".join(
        _TRY.format(variable=each["variable"], link=shlex.quote(_link(person, each)), mark=_MARK) for each in spaces
    )


def _link(person: Entry, space: Entry) -> str:
    if not space["link"] or space["by"] == "user":
        return str(space["link"])
    return f"{space['link']}/{person['groups'][0]}"


def evaluate(node: str, person: Entry, spaces: Sequence[Entry], output: str) -> Check:
    """The check, from what the script printed."""
    answers = {}
    for line in output.splitlines():
        mark, _, rest = line.partition(" ")
        if mark == _MARK and rest.count(" ") >= 3:
            variable, *words = rest.split(" ", 3)
            answers[variable] = words
    faults = [fault for each in spaces for fault in _faults(person, each, answers.get(each["variable"]))]
    wrong = {fault.partition(":")[0] for fault in faults}
    measured = f"{len(spaces) - len(wrong)} of {len(spaces)} spaces"
    message = one_line(f"as {person['name']}: {'; '.join(faults)}") if faults else ""
    return check(SPACES, node, FAIL if faults else PASS, measured, f"{len(spaces)} spaces", message=message)


def _faults(person: Entry, space: Entry, answer: Any) -> Iterator[str]:
    variable = "$" + space["variable"]
    if answer is None or not answer[2]:
        name = person["name"] if space["by"] == "user" else person["groups"][0]
        yield f"{variable}: not set: {space['path']}/{name} is missing, or belongs to another user"
        return
    written, linked, value = answer
    if written != "yes":
        yield f"{variable}: {value} can't be written to"
    if linked == "no":
        yield f"{variable}: ~/{_link(person, space)} does not lead there"
