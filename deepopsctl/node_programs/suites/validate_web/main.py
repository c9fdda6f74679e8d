"""What `node_program` starts on the node with the web pages, as the connecting user."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import ssl
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ..._shared import command, slurm_client, slurm_output
from ..._shared.checks import FAIL, PASS
from ..._slurm_jobs import suite as suite_of_jobs
from . import checks
from .browser import Browser, PageError, xsrf
from .checks import check, skip

Request = dict[str, Any]
Result = dict[str, Any]

AUTHORITY = "/etc/deepopsctl/web/authority.crt"
PAUSE_S = 1.0
_OPTION = re.compile(r'<option value="([^"]+)">\1 \(in ([^)]*)\)')
_PARTITION = re.compile(r'name="partition"><option value="([^"]+)"')
_CODE = re.compile(r'name="code" value="([^"]+)"')
_CELL = """\
import json, os
print(json.dumps({"cores": len(os.sched_getaffinity(0)), "job": os.environ.get("SLURM_JOB_ID", ""),
"node": os.uname().nodename, "gpus": os.environ.get("CUDA_VISIBLE_DEVICES", ""), "user": os.getuid(),
"url": os.environ["JUPYTERHUB_SERVICE_URL"]}))
"""


def main(request: Request) -> Result:
    """The checks of one user's notebook."""
    return suite_of_jobs.run_trials(request, trials)


def trials(request: Request) -> Result:
    """A check after the other: what one needs of those before it has failed otherwise."""
    node, made = request["node"], []
    session = _Session(request)
    try:
        for name, message in session.steps():
            made.append(check(name, node, PASS, message=message) if message else skip(name, node, "web_files is off"))
    except (PageError, slurm_client.NoAnswerError) as error:
        made.append(check(checks.ALL[len(made)], node, FAIL, message=str(error)))
    finally:
        session.end()
    missing = [skip(name, node, "an earlier check failed") for name in checks.ALL[len(made) :]]
    return {"checks": [*made, *missing]}


class _Session:
    """One user's way: each step says what it has seen; '' for what the site has turned off."""

    def __init__(self, request: Request) -> None:
        self._user = getpass.getuser()
        self._wait_s = float(request["start_timeout"])
        self._browser = Browser("", AUTHORITY)
        self._cell: dict[str, Any] = {}
        self._started = False
        self._file = f"deepops-validate-{uuid.uuid4().hex[:12]}.txt"

    def steps(self) -> Iterator[tuple[str, str]]:
        """All of them. Raises PageError."""
        yield checks.LOGIN, self._log_in()
        yield checks.FILES, self._use_files()
        yield checks.NOTEBOOK, self._start()
        yield checks.CELL, self._run()
        yield checks.PRIVATE, self._knock()
        yield checks.STOPPED, self._stop()

    def end(self) -> None:
        """Leave no notebook and no file, whatever has failed."""
        with suppress(OSError):
            os.unlink(os.path.join(os.path.expanduser("~"), self._file))
        if self._started:
            command.run(["scancel", "--me", "--name=notebook"], 30, env=command.slurm_environment())

    def _log_in(self) -> str:
        printed = command.run(["web", "--json"], 30)
        if not printed.ok:
            raise PageError(printed.failure)
        url = json.loads(printed.output)["url"]
        self._browser.base = url.partition("/hub/")[0]
        page = self._browser.open(url)
        code = _CODE.search(page)
        if code is None or self._user not in page:
            raise PageError("the link does not say whom it logs in")
        form = {"_xsrf": xsrf(page), "code": code[1]}
        self._browser.open("/hub/link", form)
        again = Browser(self._browser.base, AUTHORITY)
        try:
            again.open("/hub/link", {"_xsrf": xsrf(again.open(url)), "code": code[1]})
        except PageError:
            pass
        else:
            raise PageError("the link works twice")
        if f'user: "{self._user}"' not in self._browser.open("/hub/home"):
            raise PageError("the pages do not know the user after the login")
        return "by a link, which works once"

    def _use_files(self) -> str:
        """Upload one into the home, find it, read it, delete it."""
        if 'href="/hub/files"' not in self._browser.open("/hub/home"):
            return ""
        place, text = "/hub/files/home", f"{uuid.uuid4().hex}\n" * 1000
        form = xsrf(self._browser.open(place))
        self._browser.open(f"/hub/files-upload/home?_xsrf={form}", {}, file=(self._file, text))
        matching, entry = f"{place}?find={self._file}", f'href="{place}/{self._file}"'
        if entry not in self._browser.open(matching):
            raise PageError(f"~/{self._file} was uploaded, and is not listed")
        if self._browser.open(f"/hub/files-download/home/{self._file}") != text:
            raise PageError(f"~/{self._file} is not downloaded as it was uploaded")
        self._browser.open(f"{place}/{self._file}", {"_xsrf": form, "do": "remove"})
        if entry in self._browser.open(matching):
            raise PageError(f"~/{self._file} was deleted, and is still listed")
        return "a file was uploaded, listed, downloaded and deleted"

    def _start(self) -> str:
        page = self._browser.open("/hub/spawn")
        first = _PARTITION.search(page)
        if first is None:
            raise PageError("the user may not start a notebook: no partition is offered")
        gpus = [kind for kind, where in _OPTION.findall(page) if first[1] in where.split(", ")]
        form = {"partition": first[1], "hours": "1", "cpus": "1", "memory_gb": "1", "gpu": gpus[0] if gpus else "none"}
        began = time.monotonic()
        self._started = True
        self._browser.open("/hub/spawn?_xsrf=" + xsrf(page), {**form, "_xsrf": xsrf(page)})
        while time.monotonic() - began < self._wait_s:
            server = self._model().get("servers", {}).get("", {})
            if server.get("ready"):
                return f"up after {time.monotonic() - began:.0f} s in {first[1]}" + (", with a GPU" if gpus else "")
            if not server.get("pending") and time.monotonic() - began > 5:
                raise PageError("the notebook did not start: `journalctl -u deepops-web-hub` has the reason")
            time.sleep(PAUSE_S)
        raise PageError(f"no notebook after {self._wait_s:.0f} s: its job may wait, `why` says for what")

    def _model(self) -> dict[str, Any]:
        model: dict[str, Any] = json.loads(self._browser.open(f"/hub/api/users/{self._user}", method="GET"))
        return model

    def _run(self) -> str:
        home = f"/user/{self._user}"
        self._browser.open(home + "/lab")
        kernel = json.loads(self._browser.open(home + "/api/kernels", method="POST", body={"name": "python3"}))["id"]
        self._cell = json.loads(self._browser.execute(f"{home}/api/kernels/{kernel}/channels", _CELL))
        known = {row[0]: row[1] for row in slurm_client.jobs("%i|%C", "--me")}
        job = self._cell["job"]
        if job not in known:
            raise PageError(f"the cell runs in no job of the user's: {job or 'none'}")
        if self._cell["cores"] > int(known[job]):
            raise PageError(f"the cell sees {self._cell['cores']} cores, and job {job} has {known[job]}")
        gpus = f", GPUs {self._cell['gpus']}" if self._cell["gpus"] else ""
        return f"job {job} on {self._cell['node']}: cores {self._cell['cores']}{gpus}"

    def _knock(self) -> str:
        """Without the proxy's certificate the notebook answers nothing."""
        node, port = self._cell["node"], int(self._cell["url"].split(":")[2].partition("/")[0])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # who it is does not matter: nothing is sent that anybody may not know
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            with socket.create_connection((node, port), 10) as raw, context.wrap_socket(raw) as connection:
                connection.sendall(b"GET /api HTTP/1.0\r\n\r\n")
                if connection.recv(100):
                    raise PageError(f"{node}:{port} answers without a certificate of the proxy")
        except OSError as error:
            return f"{node}:{port} refuses a connection without the proxy's certificate ({type(error).__name__})"
        return f"{node}:{port} ends a connection without the proxy's certificate"

    def _stop(self) -> str:
        self._browser.open(f"/hub/api/users/{self._user}/server", method="DELETE")
        job, until = self._cell["job"], time.monotonic() + 60
        while any(row[0] == job for row in slurm_client.jobs("%i|%T", "--me")):
            if time.monotonic() > until:
                raise PageError(f"job {job} runs on after the notebook was stopped")
            time.sleep(PAUSE_S)
        self._started = False
        argv = ["sacct", "--noheader", "--parsable2", "--allocations", "--jobs=" + job, "--format=JobID,State,Elapsed"]
        while time.monotonic() < until:
            rows = [line.split("|") for line in slurm_client.require(argv).splitlines()]
            if rows and rows[0][0] == job and rows[0][1].split()[0] not in ("PENDING", "RUNNING", "COMPLETING"):
                return slurm_output.clean(f"job {job} is gone, and accounted: {rows[0][1]}, {rows[0][2]}")
            time.sleep(PAUSE_S)
        raise PageError(f"job {job} is gone, and not in the accounting")
