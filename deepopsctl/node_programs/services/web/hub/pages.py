"""Our pages in JupyterHub: one-time links, the cookie for one's own notebooks, own jobs, the cluster."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jupyterhub import orm
from jupyterhub._xsrf_utils import _set_xsrf_cookie
from jupyterhub.apihandlers import APIHandler
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.handlers.login import LoginHandler, LogoutHandler
from tornado import web
from tornado.escape import json_decode

from .. import CONFIG, client, routes, views
from ..client import SilentError
from ..kept import Kept
from ..offer import RefusedError
from . import certificates
from .proved import Proved

_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)


class LinkHandler(LoginHandler):
    """A link shows whom it logs in, and a button does it: what looks at links before a person does uses none up."""

    async def get(self) -> None:
        """Ask."""
        owner = self.authenticator.links.owner(self.get_argument("code", ""))
        _set_xsrf_cookie(self, self._xsrf_token_id, cookie_path=self.hub.base_url, xsrf_token=self.xsrf_token)
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cache-Control", "no-store")
        self.set_header("Content-Security-Policy", _PAGE_POLICY)
        code = self.get_argument("code", "") if owner else ""
        self.finish(self._page(owner=owner, code=code))

    async def post(self) -> None:
        """Log in."""
        user = self.authenticator.links.take(self.get_body_argument("code", ""))
        entered = await self.login_user(Proved(username=user)) if user else None
        if entered is None:
            self.set_status(403)
            self.finish(self._page(owner="", code=""))
            return
        self._jupyterhub_user = entered
        self.redirect(self.get_next_url(entered))

    def _page(self, **values: str) -> str:
        return str(BaseHandler.render_template(self, "link.html", sync=True, **values))


class EndSessionsHandler(LogoutHandler):
    """Logging out makes the user's cookies worthless, also copies: JupyterHub itself only removes one."""

    async def default_handle_logout(self) -> None:
        """In all browsers."""
        user = self.current_user
        await super().default_handle_logout()
        if user:
            user.orm_user.cookie_id = orm.new_token()
            self.db.commit()
            self.log.info("audit: logout user=%s", user.name)


class OwnNotebookHandler(BaseHandler):
    """Gives a browser the cookie without which the proxy opens no notebook: that of the user who is logged in there."""

    @web.authenticated
    async def get(self) -> None:
        """Set it, and open the page; another user's notebook is refused here, before its server has any word in it."""
        user, wanted = self.current_user, self.get_argument("next", "")
        prefix = user.url
        if not routes.is_own_path(wanted, prefix):
            self.log.info("audit: notebook of another refused user=%s path=%r", user.name, wanted[:80])
            raise web.HTTPError(403, "that is not a notebook of yours")
        secret = routes.secret_of(user.name, self.authenticator.notebook_key)
        self._set_cookie(routes.COOKIE, secret, encrypted=False, path=prefix, samesite="Lax", secure=True)
        self.redirect(wanted)


class NotebookHandler(APIHandler):
    """What the job of a notebook says of itself, with the token that only it has: its port, and nothing else."""

    @web.authenticated
    async def post(self) -> None:
        """Take the port; answer with the certificate for it."""
        token = self.get_auth_token()
        spawners = self.current_user.spawners.values() if token and hasattr(self.current_user, "spawners") else ()
        spawner = next((each for each in spawners if each.api_token == token and each.pending == "spawn"), None)
        try:
            port = int(json_decode(self.request.body)["port"])
        except (ValueError, KeyError, TypeError) as error:
            raise web.HTTPError(400, "a port is missing") from error
        if spawner is None or not 1023 < port < 65536:
            raise web.HTTPError(403, "no notebook is starting for this token")
        try:
            address = await spawner.address()
        except (RuntimeError, OSError, SilentError) as error:
            raise web.HTTPError(503, str(error)) from error
        lasting = timedelta(minutes=spawner.limits.minutes + 60)
        name = routes.name_of(self.current_user.name)
        answer = certificates.sign(Path(CONFIG).parent, name, address, lasting)
        spawner.reported_port = port
        self.finish(answer)


_SOFTWARE = Kept()


class Page(BaseHandler):
    """A page of ours for who is logged in."""

    async def ask(self, what: str, **more: Any) -> dict[str, Any]:
        """What the agent answers for this user; with `trouble` where it does not."""
        try:
            answer = await client.ask(what, self.current_user.name, **more)
        except RefusedError as error:
            answer = {"trouble": str(error)}
        except SilentError as error:
            self.log.warning("%s", error)
            answer = {"trouble": views.NO_ANSWER}
        return {**answer, "trouble": views.trouble(answer.get("trouble", ""))}

    def days(self, default: int) -> int:
        """How far back a page looks."""
        text = self.get_argument("days", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else default

    async def show(self, name: str, **values: Any) -> None:
        """Send a page."""
        self.set_header("Content-Security-Policy", _PAGE_POLICY)
        self.set_header("Cache-Control", "no-store")
        self.finish(await self.render_template(name, **values))


class JobsHandler(Page):
    """The jobs of who is logged in, or those of an account."""

    @web.authenticated
    async def get(self) -> None:
        """All of them."""
        days, account = self.days(7), self.get_argument("account", "")
        answer = await self.ask("jobs", days=days, account=account)
        await self.show("jobs.html", days=days, account=account, **views.jobs(answer))


class UsageHandler(Page):
    """What who is logged in has used, and with `users` those of the same accounts that Slurm shows."""

    @web.authenticated
    async def get(self) -> None:
        """The sums."""
        days, users = self.days(30), self.get_argument("users", "") == "1"
        answer = await self.ask("usage", days=days, users=users)
        await self.show("usage.html", days=days, users=users, **views.usage(answer))


class JobHandler(Page):
    """One job, as Slurm shows it to who is logged in."""

    @web.authenticated
    async def get(self, job: str) -> None:
        """What `why` says, and what it used. Monitoring is asked after Slurm has said whose it is."""
        answer, site = await self.ask("job", job=job), self.authenticator.site
        use, course = answer.get("use"), None
        if site["monitoring"] and use and views.has_course(use):
            course = await self.ask("course", number=int(use["number"]), start=use["start"], end=views.until(use))
        await self.show("job.html", job=job, **views.one_job(answer, course, site["grafana"], site["idle_minutes"]))


class CancelHandler(Page):
    """Cancels a job of who is logged in."""

    @web.authenticated
    async def post(self, job: str) -> None:
        """Slurm refuses it for a job of another user's."""
        answer = await self.ask("cancel", job=job)
        trouble = answer.get("trouble", "")
        self.log.info("audit: cancel%s user=%s job=%s", " refused" if trouble else "", self.current_user.name, job)
        if trouble:
            self.set_status(403)
            await self.show("job.html", job=job, **views.one_job({"trouble": trouble}))
            return
        self.redirect(f"{self.hub.base_url}jobs")


class ClusterHandler(Page):
    """The cluster now."""

    @web.authenticated
    async def get(self) -> None:
        """Its page."""
        answer = await self.ask("cluster")
        site = self.authenticator.site
        await self.show("cluster.html", news=site["news"], grafana=site["grafana"], **views.cluster(answer))


class SpaceHandler(Page):
    """The limits of file systems for who is logged in."""

    @web.authenticated
    async def get(self) -> None:
        """What `diskusage_report` says."""
        await self.show("space.html", **views.space(await self.ask("space")))


class SoftwareHandler(Page):
    """Environments, wheels, and examples of jobs."""

    @web.authenticated
    async def get(self) -> None:
        """What there is, as it was in the last minutes: the directory of wheels may be long."""
        wanted = self.get_argument("wanted", "").strip()
        key = self.current_user.name, wanted
        answer = _SOFTWARE.get(key)
        if answer is None:
            answer = await self.ask("software", wanted=wanted)
            if not answer["trouble"]:
                _SOFTWARE.put(key, answer)
        known = {"wheels": None, "more": False, "examples": [], **answer}
        await self.show("software.html", wanted=wanted, environments=self.authenticator.site["environments"], **known)


class AssetHandler(BaseHandler):
    """Style and scripts of the pages: a policy without exceptions needs them as files of their own."""

    async def get(self, name: str) -> None:
        """It."""
        path = Path(CONFIG).parent / "assets" / name
        kinds = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
        if urlsplit(name).path != name or path.suffix not in kinds or not path.is_file():
            raise web.HTTPError(404)
        self.set_header("Content-Type", kinds[path.suffix])
        self.set_header("Cache-Control", "max-age=300")
        self.finish(path.read_bytes())


HANDLERS = [
    ("/logout", EndSessionsHandler),
    ("/link", LinkHandler),
    ("/notebook", OwnNotebookHandler),
    ("/api/notebook", NotebookHandler),
    ("/jobs", JobsHandler),
    (r"/jobs/([0-9]{1,10}(?:[_+][0-9]{1,10})?)", JobHandler),
    (r"/jobs/([0-9]{1,10}(?:[_+][0-9]{1,10})?)/cancel", CancelHandler),
    ("/usage", UsageHandler),
    ("/space", SpaceHandler),
    ("/software", SoftwareHandler),
    ("/cluster", ClusterHandler),
    (r"/assets/([a-z]+\.(?:css|js))", AssetHandler),
]
