"""The pages of files in JupyterHub: what is sent and received goes through, and is nowhere whole."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import AsyncExitStack
from typing import Any

from tornado import web
from tornado.iostream import StreamClosedError

from .. import files_client, files_views
from ..client import SilentError
from ..files import MissingError
from ..files_client import Exchange
from ..offer import RefusedError
from .pages import Page

# what the agent may take to store what it has, when all of it has come
STORE_S = 110
# after a refusal: browsers show an answer when they have sent all, or when HAProxy, which then takes no more, ends the
# connection after its `timeout client`; some send all once more before
THROW_AWAY_S = 60
_BOUNDARY = re.compile(r"multipart/form-data;\s*boundary=\"?([^\";]{1,70})\"?", re.IGNORECASE)
_INERT = "sandbox; default-src 'none'; frame-ancestors 'none'"
_PLACE = r"/([a-z]+(?::[^/]{1,300})?(?:/.*)?)"


class _FilePage(Page):
    """A page about a place: a root's key, and the names below it. Names are bytes, whatever they were meant to be."""

    def decode_argument(self, value: bytes, name: str | None = None) -> str:  # noqa: ARG002 (Tornado's)
        """As the file system has it."""
        return value.decode("utf-8", "surrogateescape")

    @property
    def site(self) -> dict[str, Any]:
        """The settings of a deploy."""
        known: dict[str, Any] = self.authenticator.site
        return known

    def note(self, what: str, place: list[str], trouble: str = "", name: str = "") -> None:
        """A line of the log of who has done what."""
        refused = " refused" if trouble else ""
        where, more = "/".join(place)[:400], f" name={name[:255]!a}" if name else ""
        self.log.info("audit: file %s%s user=%s place=%a%s", what, refused, self.current_user.name, where, more)

    async def answer(self, what: str, **more: Any) -> dict[str, Any]:
        """What the agent says; with `trouble` where it does not."""
        try:
            return await files_client.ask(what, self.current_user.name, **more)
        except MissingError as error:
            self.set_status(404)
            return {"trouble": str(error)}
        except RefusedError as error:
            self.set_status(403)
            return {"trouble": str(error)}
        except SilentError as error:
            self.log.warning("%s", error)
            self.set_status(503)
            return {"trouble": files_views.NO_ANSWER}

    async def show_place(self, place: list[str], trouble: str = "") -> None:
        """The page of a place, with what went wrong."""
        page = self.get_query_argument("page", "")
        asked = {
            "page": int(page) if page.isascii() and page.isdigit() and len(page) < 6 else 1,
            "order": self.get_query_argument("order", "name"),
            "find": self.get_query_argument("find", "")[:200],
            "all": self.get_query_argument("all", "") == "1",
        }
        answer = await self.answer("inspect", place=place, **asked)
        leads = answer.get("leads")
        if leads and not trouble and self.get_query_argument("link", "") != "1":
            self.redirect(self.at(files_views.address(leads)))
            return
        shown = files_views.place(place, {**answer, "trouble": trouble or answer.get("trouble", "")}, asked)
        await self.show("files.html", find=asked["find"], most=self.site["upload_bytes"], **shown)

    def at(self, address: str) -> str:
        """The address of a place."""
        return f"{self.hub.base_url}files/{address}"


def _place(text: str) -> list[str]:
    return text.rstrip("/").split("/")


class RootsHandler(_FilePage):
    """Where one's files are."""

    @web.authenticated
    async def get(self) -> None:
        """All roots."""
        await self.show("roots.html", **files_views.index(await self.answer("roots")))


class PlaceHandler(_FilePage):
    """A directory, or a file."""

    @web.authenticated
    async def get(self, text: str) -> None:
        """What is there."""
        await self.show_place(_place(text))

    @web.authenticated
    async def post(self, text: str) -> None:
        """Make a directory in it, or rename or remove it."""
        place, what = _place(text), self.get_body_argument("do", "")
        if what not in ("make", "rename", "remove"):
            raise web.HTTPError(400)
        name = self.get_body_argument("name", "", strip=False)
        answer = await self.answer(what, place=place, name=name)
        trouble = answer.get("trouble", "")
        self.note(what, place, trouble, name)
        if trouble:
            await self.show_place(place, trouble)
            return
        self.redirect(self.at(files_views.address(place if what == "make" else place[:-1])), status=303)


class DownloadHandler(_FilePage):
    """A file, or a part of it, piece by piece; never as something that a browser would run."""

    IMAGE = False

    @web.authenticated
    async def get(self, text: str) -> None:
        """Send it."""
        place = _place(text)
        headers = self.request.headers
        more = {"image": self.IMAGE, "range": headers.get("Range", ""), "if_range": headers.get("If-Range", "")}
        try:
            async with files_client.exchange("download", self.current_user.name, place=place, **more) as asked:
                head = await asked.head()
                self._begin(place[-1], head)
                await self._pass_on(asked, head["length"])
        except MissingError as error:
            raise web.HTTPError(404, "%s", str(error)) from error
        except RefusedError as error:
            raise web.HTTPError(403, "%s", str(error)) from error
        except (SilentError, StreamClosedError) as error:
            self._cut(str(error))

    def _begin(self, name: str, head: dict[str, Any]) -> None:
        if not self.IMAGE:
            self.note("download", _place(self.path_args[0]))
        self.set_header("Content-Security-Policy", _INERT)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cross-Origin-Resource-Policy", "same-origin")
        self.set_header("Cache-Control", "private, no-store")
        self.set_header("Content-Type", head["type"] if self.IMAGE else "application/octet-stream")
        self.set_header("Content-Length", str(head["length"]))
        if self.IMAGE:
            return
        self.set_header("Content-Disposition", files_views.attachment(name))
        self.set_header("Accept-Ranges", "bytes")
        self.set_header("Etag", head["tag"])
        if head.get("unsatisfiable"):
            self.set_status(416)
            self.set_header("Content-Range", f"bytes */{head['size']}")
        elif head["part"]:
            self.set_status(206)
            last = head["start"] + head["length"] - 1
            self.set_header("Content-Range", f"bytes {head['start']}-{last}/{head['size']}")

    async def _pass_on(self, asked: Exchange, left: int) -> None:
        while left:
            data = await asked.data()
            if not data:
                raise SilentError("the file became shorter")
            left -= len(data)
            self.write(data)
            await self.flush()

    def _cut(self, why: str) -> None:
        """Its length was reply: the browser sees that it is not whole."""
        self.log.warning("download cut: %s", why)
        if not self._headers_written:
            raise web.HTTPError(503)
        self.request.connection.close()

    def compute_etag(self) -> None:
        """It has the agent's."""
        return


class ImageHandler(DownloadHandler):
    """A small picture, as its page shows it."""

    IMAGE = True


@web.stream_request_body
class UploadHandler(_FilePage):
    """Files of a form. Its token is in the address: it is compared before anything of the files is taken."""

    _asked: Exchange | None = None
    _answer: asyncio.Task[dict[str, Any]] | None = None
    _stack: AsyncExitStack
    _trouble = ""
    _refused_at = 0.0

    async def prepare(self) -> None:
        """Ask for it, before the first byte comes."""
        self._stack = AsyncExitStack()
        await super().prepare()
        if self.current_user is None:
            raise web.HTTPError(403)
        form = _BOUNDARY.match(self.request.headers.get("Content-Type", ""))
        length = self.request.headers.get("Content-Length", "")
        if not form or not length.isdigit():
            raise web.HTTPError(400, "that is not a form with files")
        most, place = self.site["upload_bytes"], _place(self.path_args[0])
        self.request.connection.set_max_body_size(max(int(length), 1))
        if int(length) > most:
            self._trouble = (
                f"that is more than {files_views.size(most)}, which these pages take at once: use rsync or scp"
            )
            return
        try:
            self._asked = await self._stack.enter_async_context(
                files_client.exchange(
                    "upload", self.current_user.name, place=place, length=int(length), boundary=form[1]
                )
            )
            self._answer = asyncio.create_task(self._asked.result())
        except RefusedError as error:
            self._trouble = str(error)
        except SilentError as error:
            self.log.warning("%s", error)
            self._trouble = files_views.NO_ANSWER

    async def data_received(self, chunk: bytes) -> None:
        """Pass it on; when it is refused, the rest is thrown away, as far as it comes soon."""
        if self._asked is None or self._answer is None or self._answer.done():
            self._refused_at = self._refused_at or time.monotonic()
            if time.monotonic() - self._refused_at > THROW_AWAY_S:
                await self._end()
            return
        try:
            await self._asked.say(chunk)
        except SilentError:
            # what it said before it ended comes with the answer
            self._asked = None

    async def post(self, text: str) -> None:  # noqa: ARG002 (Tornado's)
        """Say what has become of it."""
        if not self._finished:
            await self._end()

    async def _end(self) -> None:
        place = _place(self.path_args[0])
        stored, trouble = await self._result()
        for name in stored:
            self.note("upload", [*place, name])
        if trouble:
            self.note("upload", place, trouble)
            self.set_status(403)
            if stored:
                trouble += f" (stored before: {', '.join(map(files_views.plain, stored))})"
            await self.show_place(place, trouble)
        else:
            self.redirect(self.at(files_views.address(place)), status=303)

    async def _result(self) -> tuple[list[str], str]:
        if self._answer is None:
            return [], self._trouble
        try:
            reply = await asyncio.wait_for(self._answer, STORE_S)
        except RefusedError as error:
            return [], str(error)
        except (SilentError, asyncio.TimeoutError) as error:
            self.log.warning("%s", error)
            return [], files_views.NO_ANSWER
        finally:
            await self._stack.aclose()
        return reply["stored"], reply.get("trouble", "")

    def on_connection_close(self) -> None:
        """The browser is gone: so is what it sent."""
        super().on_connection_close()
        if self._answer is not None:
            self._answer.cancel()
        asyncio.get_running_loop().create_task(self._stack.aclose())


HANDLERS = [
    ("/files/?", RootsHandler),
    ("/files" + _PLACE, PlaceHandler),
    ("/files-download" + _PLACE, DownloadHandler),
    ("/files-image" + _PLACE, ImageHandler),
    ("/files-upload" + _PLACE, UploadHandler),
]
