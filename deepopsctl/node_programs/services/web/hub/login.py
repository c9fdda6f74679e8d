"""Login: a link of `web` on the login node, a password by PAM, the site's provider; and pages JupyterHub has not."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import socket
import struct
from contextlib import suppress
from typing import Any

from jupyterhub.auth import Authenticator
from traitlets import Bool, Bytes, Dict, Unicode

from .. import LINKS, client, links
from ..client import BusyError, SilentError
from ..offer import RefusedError
from . import files_pages, pages, provider
from .proved import Proved


class Login(Authenticator):
    """Who is who. A name is that of an account of this node, and the account has to be open."""

    passwords = Bool(help="Whether a password opens the pages.").tag(config=True)
    public_url = Unicode().tag(config=True)
    notebook_key = Bytes().tag(config=True)
    site = Dict().tag(config=True)

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.links = links.Links()
        self.provider = provider.load(self.site)
        self._listener: asyncio.Task[None] | None = None

    async def authenticate(self, handler: Any, data: dict[str, Any]) -> str | None:
        """The name of who may come in; None for no one."""
        proved = isinstance(data, Proved)
        user = str(data.get("username", ""))
        if not proved and not self.passwords:
            return None
        address = handler.request.remote_ip or ""
        secret = {} if proved else {"password": str(data.get("password", ""))}
        try:
            is_open = (await client.ask("login", user, address=address, **secret))["open"]
        except RefusedError:
            is_open = False
        except SilentError as error:
            self.log.warning("%s", error)
            is_open = False
        verb, way = ("login" if is_open else "login refused"), (data.get("way", "link") if proved else "password")
        self.log.info("audit: %s user=%r by=%s address=%s", verb, user[:64], way, address)
        return user if is_open else None

    async def refresh_user(self, user: Any, handler: Any = None) -> bool:
        """Whether the account is still open: JupyterHub asks again every five minutes."""
        address = handler.request.remote_ip or "" if handler else ""
        try:
            is_open = bool((await client.ask("login", user.name, address=address))["open"])
        except (BusyError, SilentError) as error:
            self.log.warning("%s", error)
            return True
        except RefusedError:
            is_open = False
        if not is_open:
            self.log.info("audit: session ended user=%s: the account is closed", user.name)
        return is_open

    def normalize_username(self, username: str) -> str:
        """As the account has it: Unix names with capitals are others."""
        return username

    def get_handlers(self, app: Any) -> list[tuple[str, type]]:
        """JupyterHub's own login page, and our pages."""
        # JupyterHub's loop runs by now
        self._listener = asyncio.get_running_loop().create_task(self._listen())
        ways = provider.HANDLERS if self.provider else []
        of_files = files_pages.HANDLERS if self.site["files"] else []
        return [*super().get_handlers(app), *pages.HANDLERS, *of_files, *ways]

    async def _listen(self) -> None:
        """Give links to users of this node: the kernel says who asks."""
        with suppress(FileNotFoundError):
            os.unlink(LINKS)
        server = await asyncio.start_unix_server(self._give, LINKS)
        os.chmod(LINKS, 0o666)  # noqa: S103 (every user asks)
        async with server:
            await server.serve_forever()

    async def _give(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            packed = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            uid = struct.unpack("3i", packed)[1]
            writer.write(json.dumps(self._link(uid)).encode() + b"\n")
            await asyncio.wait_for(writer.drain(), 5)
        except (OSError, asyncio.TimeoutError):
            return
        finally:
            writer.close()

    def _link(self, uid: int) -> dict[str, Any]:
        try:
            account = pwd.getpwuid(uid)
        except KeyError:
            return {"refused": "your account is not known here"}
        if uid < self.site["least_uid"]:
            return {"refused": f"{account.pw_name} is an account of the system: log in as yourself"}
        self.log.info("audit: link given user=%s", account.pw_name)
        url = f"{self.public_url}/hub/link?code={self.links.give(account.pw_name)}"
        return {"url": url, "minutes": links.VALID_S // 60}
