"""Whether addresses outside of the cluster answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

LIMIT_S = 8


def connection_error(url: str, proxies: Mapping[str, str] | None = None) -> str:
    """Why an address does not answer; '' for an answer of any kind. Without `proxies` by those of the environment."""
    # 40 ms of a slow node's CPU, and many programs are asked for no address
    import urllib.request
    from http.client import HTTPException
    from urllib.error import HTTPError

    opener = urllib.request.build_opener(*[urllib.request.ProxyHandler(dict(proxies))] if proxies else [])
    try:
        request = urllib.request.Request(url, method="HEAD")  # noqa: S310 (a setting of the site's)
        opener.open(request, timeout=LIMIT_S).close()
    except HTTPError as error:
        # a proxy that has no way either, or wants a password
        return str(error) if error.code in (407, 502, 503, 504) else ""
    except (OSError, ValueError, HTTPException) as error:
        return str(getattr(error, "reason", "") or error)
    return ""


def unanswered(urls: Iterable[str], proxies: Mapping[str, str] | None = None) -> dict[str, str]:
    """Those that do not answer, each with the reason; without `proxies` those of the environment are asked."""
    return errors_of(urls, lambda url: connection_error(url, proxies))


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
