"""Sessions of many users on one JupyterHub: what they wait for, and what it takes on the node of the pages.

The cluster must be deployed with `web` and the people of its people.yml. Each of them logs in by a one-time link, then
loads My jobs and the cluster's page in turn, each time after a pause; no user starts a notebook. All browsers are here.

    python -m benchmarks.web_sessions DIR --url https://login1 --node login1 [--users 200] [--pages 4] [--pause 60]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import socket
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.node_programs.suites.validate_web.browser import Browser, PageError, xsrf
from deepopsctl.ssh.node_command import ask

AUTHORITY = "/etc/deepopsctl/web/authority.crt"
# links and logins at a time
BATCH = 20
UNITS = ("deepops-web-hub", "haproxy")
# kB and seconds of each unit, with the processes that it started
_USED = (
    "for unit in {units}; do pid=$(systemctl show -P MainPID $unit); "
    "echo $unit $(ps -o rss=,cputimes= -p $pid --ppid $pid | awk '{{kb += $1; s += $2}} END {{print kb, s}}'); done"
)


class Node:
    """The node of the pages, as root."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = ClusterDir(directory.resolve())
        self._cluster = self._directory.cluster()
        (self._node,) = (node for node in self._cluster.nodes if node.name == name)

    @property
    def address(self) -> str:
        """Where it is."""
        return self._node.address or self._node.name

    def output_of(self, script: str) -> str:
        """What a script prints there."""
        answer = ask(self._directory, self._cluster, self._node, ["bash", "-c", script], as_root=True, timeout_s=600)
        if answer.status:
            raise SystemExit(f"{self._node.name}: {answer.reason}")
        return answer.output

    def used(self) -> str:
        """Memory and CPU time of JupyterHub and the proxy, in words."""
        rows = (line.split() for line in self.output_of(_USED.format(units=" ".join(UNITS))).splitlines())
        return "; ".join(f"{unit} {int(kilobytes) / 1024:.0f} MiB, {cpu} s CPU" for unit, kilobytes, cpu in rows)

    def links(self, users: Sequence[str]) -> list[str]:
        """A one-time link for each."""
        shown = self.output_of(f"for user in {' '.join(users)}; do runuser -u $user -- web; done")
        return re.findall(r"^https://\S+", shown, re.MULTILINE)


class Times:
    """Seconds of each page, and what failed."""

    def __init__(self) -> None:
        self.taken: defaultdict[str, list[float]] = defaultdict(list)
        self.failed: defaultdict[str, list[str]] = defaultdict(list)

    def measure(self, what: str, work: Callable[[], str]) -> str:
        """Do it; '' where it fails."""
        began = time.monotonic()
        try:
            text = work()
        except PageError as error:
            self.failed[what].append(str(error))
            return ""
        self.taken[what].append(time.monotonic() - began)
        return text

    def lines(self) -> Iterator[str]:
        """A line for each page."""
        for what in sorted({*self.taken, *self.failed}):
            taken, failed = sorted(self.taken[what]), self.failed[what]
            tenths = quantiles(taken, n=20) if len(taken) > 1 else taken * 19
            half, most, last = (tenths[9], tenths[18], taken[-1]) if taken else (0.0, 0.0, 0.0)
            loaded = f"{what:12} {len(taken):5} loaded, half in {half:.2f} s, 95 % in {most:.2f} s, all in {last:.2f} s"
            yield f"{loaded}; {len(failed)} failed {failed[:1] or ''}"


def log_in(url: str, base: str, authority: str, times: Times) -> Browser | None:
    """A browser with the session of the link's owner."""
    browser = Browser(base, authority)
    page = times.measure("link", lambda: browser.open(url))
    if not page:
        return None
    code = parse_qs(urlsplit(url).query)["code"][0]
    landed = times.measure("log in", lambda: browser.open("/hub/link", {"_xsrf": xsrf(page), "code": code}))
    return browser if landed else None


async def session(browser: Browser, pages: int, pause: float, times: Times) -> None:
    """One user's: a page, then a pause."""
    for number in range(pages):
        await asyncio.sleep(pause * random.uniform(0.0, 2.0))  # noqa: S311 (a pause)
        path = ("/hub/jobs", "/hub/cluster")[number % 2]
        text = await asyncio.to_thread(times.measure, path, partial(browser.open, path))
        if 'class="trouble"' in text:
            times.failed[path].append(" ".join(re.findall(r'class="trouble"[^>]*>([^<]*)', text)))


async def play(users: Sequence[str], base: str, authority: str, options: argparse.Namespace, node: Node) -> Times:
    """All users: they log in, then all sessions run at the same time."""
    times, browsers = Times(), list[Browser | None]()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(len(users)))
    print("before     ", node.used(), flush=True)
    began = time.monotonic()
    for first in range(0, len(users), BATCH):
        urls = await asyncio.to_thread(node.links, users[first : first + BATCH])
        browsers += await asyncio.gather(*(asyncio.to_thread(log_in, url, base, authority, times) for url in urls))
    inside = [each for each in browsers if each]
    print(f"{len(inside)} users logged in, in {time.monotonic() - began:.0f} s")
    print("logged in  ", node.used(), flush=True)
    began = time.monotonic()
    await asyncio.gather(*(session(browser, options.pages, options.pause, times) for browser in inside))
    print(f"{options.pages} pages each, in {time.monotonic() - began:.0f} s")
    print("in the end ", node.used())
    return times


@contextmanager
def resolved(host: str | None, address: str) -> Iterator[None]:
    """The certificate has the node's name, which needs not resolve here."""
    module: Any = socket
    resolve = module.getaddrinfo

    def resolve_here(name: str, *more: Any, **options: Any) -> Any:
        return resolve(address if name == host else name, *more, **options)

    module.getaddrinfo = resolve_here
    try:
        yield
    finally:
        module.getaddrinfo = resolve


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--url", required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--pages", type=int, default=4)
    parser.add_argument("--pause", type=float, default=60)
    options = parser.parse_args()
    node, base = Node(options.directory, options.node), options.url.rstrip("/")
    people = yaml.safe_load((options.directory / "people.yml").read_text(encoding="utf-8"))["people"]
    names = [person["name"] for person in people][: options.users]
    with tempfile.NamedTemporaryFile("w", suffix=".crt") as authority, resolved(urlsplit(base).hostname, node.address):
        authority.write(node.output_of(f"cat {AUTHORITY}"))
        authority.flush()
        times = asyncio.run(play(names, base, authority.name, options, node))
    for line in times.lines():
        print(line)


if __name__ == "__main__":
    main()
