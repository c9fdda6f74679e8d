"""Whether addresses outside of the cluster answer, as apt would ask them."""

from __future__ import annotations

import glob
import os
import re
import threading
import urllib.request
from collections.abc import Callable, Iterable
from http.client import HTTPException
from urllib.error import HTTPError

from . import packages_query

LIMIT_S = 8
APT = "/etc/apt"
_ADDRESS = re.compile(r"https?://[^\s\]]+")
_DISABLED = re.compile(r"^enabled:\s*(no|false|0|off|without|disable)\s*$", re.IGNORECASE | re.MULTILINE)


def connection_error(url: str) -> str:
    """Why an address does not answer; '' for an answer of any kind."""
    return _error(urllib.request.build_opener(), url)


def _error(opener: urllib.request.OpenerDirector, url: str) -> str:
    try:
        request = urllib.request.Request(url, method="HEAD")  # noqa: S310 (a setting of the site's)
        opener.open(request, timeout=LIMIT_S).close()
    except HTTPError as error:
        # a proxy that has no way either, or wants a password
        return str(error) if error.code in (407, 502, 503, 504) else ""
    except (OSError, ValueError, HTTPException) as error:
        return str(getattr(error, "reason", "") or error)
    return ""


def unanswered(urls: Iterable[str], directory: str = APT) -> dict[str, str]:
    """Those that do not answer, each with the reason; apt's own proxy is asked where it has one."""
    proxies = _proxies(directory)
    # without any, urllib's own: those of the environment
    opener = urllib.request.build_opener(*[urllib.request.ProxyHandler(proxies)] if proxies else [])
    return errors_of(urls, lambda url: _error(opener, url))


def errors_of(urls: Iterable[str], ask: Callable[[str], str] = connection_error) -> dict[str, str]:
    """{url: why} of those that do not answer, all asked at the same time."""
    wanted = sorted(set(urls))
    answers: dict[str, str] = {}

    def note(url: str) -> None:
        answers[url] = ask(url)

    # daemons: a resolver that hangs must not keep the program from ending
    threads = [threading.Thread(target=note, args=(url,), daemon=True) for url in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S + 2)
    return {url: why for url in wanted for why in [answers.get(url, "no answer")] if why}


def package_sources(directory: str = APT) -> list[str]:
    """The addresses that apt fetches from here."""
    urls = set()
    for path in [os.path.join(directory, "sources.list"), *glob.glob(os.path.join(directory, "sources.list.d", "*"))]:
        if path.endswith((".list", ".sources")):
            for block in re.split(r"\n\s*\n", _text(path)):
                lines = [line for line in block.splitlines() if not line.lstrip().startswith("#")]
                text = "\n".join(lines)
                urls.update(() if _DISABLED.search(text) else _ADDRESS.findall(text))
    return sorted(urls)


def _proxies(directory: str) -> dict[str, str]:
    """apt's own proxies by scheme; apt-config is slow, and few nodes have one."""
    files = [os.path.join(directory, "apt.conf"), *glob.glob(os.path.join(directory, "apt.conf.d", "*"))]
    if not any("proxy" in _text(path).lower() for path in files):
        return {}
    settings = packages_query.settings()
    values = {scheme: settings.get(f"Acquire::{scheme}::Proxy", [""])[-1] for scheme in ("http", "https")}
    # apt takes the first for both
    values["https"] = values["https"] or values["http"]
    return {scheme: value for scheme, value in values.items() if value and value != "DIRECT"}


def _text(path: str) -> str:
    try:
        with open(path, errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
