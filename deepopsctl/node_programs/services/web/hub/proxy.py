"""JupyterHub's proxy is HAProxy: its configuration is root's and fixed, and only the table of notebooks changes."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

from jupyterhub.proxy import Proxy
from traitlets import Bytes, Unicode

from .. import routes
from ..routes import Route

PATIENCE_S = 10


class HAProxy(Proxy):
    """Adds and removes routes by HAProxy's own socket."""

    key = Bytes(help="Of the cookies that open notebooks.").tag(config=True)
    socket = Unicode(routes.SOCKET).tag(config=True)

    async def add_route(self, routespec: str, target: str, data: dict[str, Any]) -> None:
        """Of a notebook; JupyterHub's own is in HAProxy's configuration."""
        if "user" not in data:
            return
        address = urlsplit(target)
        user = data["user"]
        route = Route(
            routespec, address.hostname or "", address.port or 0, routes.name_of(user),
            routes.secret_of(user, self.key),
        )  # fmt: skip
        await self._say(routes.add(route))

    async def delete_route(self, routespec: str) -> None:
        """Of a notebook; nothing where there is none."""
        if routespec != "/":
            await self._say(routes.remove(routespec))

    async def get_all_routes(self) -> dict[str, dict[str, Any]]:
        """As JupyterHub compares them with what it knows; it asks for its own as well."""
        known = routes.read(await self._say(routes.SHOW))
        own = {"routespec": self.hub.routespec, "target": self.hub.host, "data": {"hub": True}}
        return {
            self.hub.routespec: own,
            **{
                path: {
                    "routespec": path,
                    "target": f"https://{_host(route.address)}:{route.port}",
                    "data": {"user": path.split("/")[2], "server_name": ""},
                }
                for path, route in known.items()
            },
        }

    async def _say(self, words: str) -> str:
        try:
            return await asyncio.wait_for(_exchange(self.socket, words), PATIENCE_S)
        except OSError as error:
            raise RuntimeError(f"HAProxy does not answer at {self.socket}: {error}") from error


async def _exchange(path: str, words: str) -> str:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(words.encode() + b"\n")
        await writer.drain()
        return (await reader.read()).decode()
    finally:
        writer.close()


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
