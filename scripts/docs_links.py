"""Links of the pages into the repository, for the site: there they lead to the file's page of the repository."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\]\((?P<target>(?:\.\./)+[^)#\s]*)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_unused: Any) -> str:
    """Replace each relative link that leaves docs/ by an address; MkDocs calls it once a page."""

    def address(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), match["target"]))
        return match[0] if path.startswith("docs/") else f"]({config.repo_url}/blob/main/{path}"

    return _LINK.sub(address, markdown)
