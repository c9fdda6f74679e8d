"""A node list in cluster.yml's format. It may also contain `settings`, for the new settings.yml."""

from __future__ import annotations

import re

import yaml

from deepopsctl.cluster.builder import Draft
from deepopsctl.cluster.spec import draft_document
from deepopsctl.text.problems import Problems
from deepopsctl.text.source import check_markers
from deepopsctl.text.yaml_reader import Document, parse_yaml

KEY = "settings"
_VARIABLE = re.compile(r"[a-z][a-z0-9_]*")


def draft_yaml(text: str, where: str, problems: Problems) -> Draft:
    """The nodes, and the settings in `carryover.direct_settings`."""
    check_markers(text, where, problems)
    document = parse_yaml(text, where, problems)
    if document is None or not isinstance(document.value, dict) or KEY not in document.value:
        return draft_document(document, where, problems)
    rest = {key: value for key, value in document.value.items() if key != KEY}
    draft = draft_document(Document(rest, document.lines), where, problems)
    # parse_yaml returns strings only, and these values are for Ansible
    settings = yaml.safe_load(text)[KEY]
    wrong = [] if isinstance(settings, dict) else [str(settings)]
    wrong = wrong or [str(name) for name in settings if not _VARIABLE.fullmatch(str(name))]
    if wrong:
        hint = "write `name: value`, as in settings.yml"
        problems.add(f"{where}:{document.line((KEY,))}", f"settings: {wrong[0]} is no variable of Ansible's", hint)
    else:
        draft.carryover.direct_settings.update(settings)
    return draft
