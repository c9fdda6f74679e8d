"""A notebook is a job under the user's own account: the agent submits it as the user, and Slurm decides."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

from jupyterhub.spawner import Spawner
from tornado import web
from traitlets import Dict, Instance, Unicode

from .. import client, offer, views
from ..client import SilentError
from ..offer import Limits, Offer, RefusedError

PAUSE_S = 1.0
_ENDED = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
    "REVOKED",
})  # fmt: skip
STATES = client.States()


class Notebook(Spawner):
    """One notebook server."""

    limits = Instance(Limits).tag(config=True)
    addresses = Dict(help="Addresses of nodes whose names do not resolve.").tag(config=True)
    job = Unicode()
    # what the job says of itself
    reported_port = 0
    _shown: dict[str, str] | None = None

    # --- the page on which it is asked for

    def _options_form_default(self) -> Any:
        return _form

    def options_from_form(self, form_data: dict[str, list[str]]) -> dict[str, str]:
        """What the page sends; start() compares it with what is allowed."""
        return offer.from_form(form_data)

    def apply_user_options(self, _spawner: Any, _options: Any) -> None:
        """start() does it."""

    # --- its life

    async def start(self) -> str:
        """Submit, and wait for the job and its word; the address of the server."""
        self.reported_port, self._shown = 0, None
        try:
            answer = await client.ask(
                "submit", self.user.name, wanted=dict(self.user_options), environment=self.get_env()
            )
        except RefusedError as error:
            raise _refused(error) from error
        except SilentError as error:
            self.log.warning("%s", error)
            raise web.HTTPError(503, views.NO_ANSWER) from error
        self.job = answer["job"]
        self.log.info("audit: notebook started user=%s job=%s", self.user.name, self.job)
        while not self.reported_port:
            await asyncio.sleep(PAUSE_S)
            if await self.poll() is not None:
                raise web.HTTPError(
                    500, f"job {self.job or answer['job']} ended before the notebook was up: "
                    "see ~/.local/state/deepopsctl/notebook.log",
                )  # fmt: skip
        return f"https://{_host(await self.address())}:{self.reported_port}"

    async def address(self) -> str:
        """Of the node that the job runs on. Raises RuntimeError."""
        shown = await STATES.of(self.job)
        if not shown or shown["state"] != "RUNNING" or not shown["node"]:
            raise RuntimeError(f"job {self.job} does not run")
        node = shown["node"]
        if node in self.addresses:
            return str(self.addresses[node])
        resolved = await asyncio.get_running_loop().getaddrinfo(node, None, type=socket.SOCK_STREAM)
        return str(resolved[0][4][0])

    async def poll(self) -> int | None:
        """None while the job waits or runs, and while Slurm does not answer: then no one knows better."""
        if not self.job:
            return 0
        try:
            self._shown = await STATES.of(self.job)
        except SilentError as error:
            self.log.warning("%s", error)
            return None
        # another user's job of the same number: Slurm's numbers begin again
        theirs = self._shown is not None and self._shown["user"] != self.user.name
        if self._shown is None or theirs or self._shown["state"] in _ENDED:
            STATES.forget(self.job)
            return 1
        return None

    async def stop(self, now: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 (of the base)
        """Cancel the job."""
        if not self.job:
            return
        try:
            await client.ask("cancel", self.user.name, job=self.job)
        except (RefusedError, SilentError) as error:
            self.log.warning("job %s of %s is not cancelled: %s", self.job, self.user.name, error)
            return
        self.log.info("audit: notebook stopped user=%s job=%s", self.user.name, self.job)
        for _ in range(20):
            if await self.poll() is not None:
                return
            await asyncio.sleep(PAUSE_S)

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """What the job waits for, on the page that waits."""
        last = ""
        while True:
            shown = self._shown
            text = "asking Slurm"
            if shown and shown["state"] == "PENDING":
                text = f"job {self.job} waits: {shown['reason']}"
            elif shown:
                text = f"job {self.job} starts on {shown['node'] or 'its node'}"
            if text != last:
                last = text
                yield {"message": text}
            await asyncio.sleep(PAUSE_S)

    # --- what is kept over a restart of JupyterHub

    def load_state(self, state: dict[str, Any]) -> None:
        """Of the job."""
        super().load_state(state)
        self.job = state.get("job", "")

    def get_state(self) -> dict[str, Any]:
        """Its number."""
        return {**super().get_state(), **({"job": self.job} if self.job else {})}

    def clear_state(self) -> None:
        """There is none any more."""
        super().clear_state()
        self.job = ""


async def _form(spawner: Notebook) -> str:
    try:
        offered = Offer.read(await client.ask("offer", spawner.user.name))
    except RefusedError as error:
        raise _refused(error) from error
    except SilentError as error:
        spawner.log.warning("%s", error)
        raise web.HTTPError(503, views.NO_ANSWER) from error
    return offer.form(offered, spawner.limits)


def _refused(error: RefusedError) -> web.HTTPError:
    text = views.trouble(str(error))
    return web.HTTPError(503 if text == views.NO_ANSWER else 403, text)


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
