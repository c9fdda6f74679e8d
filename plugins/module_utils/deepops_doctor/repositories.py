"""Whether the repositories that a deploy would add can be reached from here."""

from __future__ import annotations

import os
import threading
import urllib.request
from http.client import HTTPException
from typing import Any, Dict, List
from urllib.error import HTTPError

TIMEOUT_S = 8


def connection_error(url: str) -> str:
    """Why an address does not answer; '' for an answer of any kind."""
    try:
        request = urllib.request.Request(url, method="HEAD")  # noqa: S310 (a setting of the site's)
        urllib.request.urlopen(request, timeout=TIMEOUT_S).close()  # noqa: S310 (as above)
    except HTTPError as error:
        # a proxy that has no way either, or wants a password
        return str(error) if error.code in (407, 502, 503, 504) else ""
    except (OSError, ValueError, HTTPException) as error:
        return str(error)
    return ""


def unreachable(wanted: List[Dict[str, Any]]) -> List[Dict[str, str]]:
    """Of each that can't be reached what it is for, its address and why."""
    asked = [entry for entry in wanted if not any(os.path.exists(path) for path in entry.get("unless", []))]
    answers = {}  # type: Dict[str, str]

    def ask(url: str) -> None:
        answers[url] = connection_error(url)

    urls = sorted({str(entry["url"]) for entry in asked})
    # daemons: a resolver that hangs must not keep the module from ending
    threads = [threading.Thread(target=ask, args=(url,), daemon=True) for url in urls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S + 2)
    repositories = [{"what": str(entry["what"]), "url": str(entry["url"])} for entry in asked]
    return [dict(entry, why=why) for entry in repositories for why in [answers.get(entry["url"], "no answer")] if why]
