"""The checks of the suite `web` by name, as docs/deploy/web.md defines them."""

from __future__ import annotations

from deepopsctl.checks.catalogue.entry import Entry

_GROUP = "Web pages"

WEB = {
    "web-login": Entry(
        _GROUP, "login", "A link of `web` logs a browser in, once.",
        "on the node: `journalctl -u deepops-web-hub -u haproxy`",
    ),
    "web-files": Entry(
        _GROUP, "files", "A file is uploaded into the user's home, listed, downloaded and deleted.",
        "on the node: `journalctl -u 'deepops-web-files@*' -u deepops-web-hub`",
    ),
    "web-notebook": Entry(
        _GROUP, "notebook", "A notebook that is asked for on the page is up: a job of the user's own.",
        "`squeue --name=notebook`, `why JOBID`; in the user's home: ~/.local/state/deepopsctl/notebook.log",
    ),
    "web-cell": Entry(
        _GROUP, "cell", "A cell runs in that job, with its cores and GPUs.",
        "in the user's home: ~/.local/state/deepopsctl/notebook.log",
    ),
    "web-private": Entry(
        _GROUP, "closed to others", "The notebook's port answers no one but the proxy of the web pages.",
        "`/etc/deepopsctl/web` on the node of the job: deploy web there again",
    ),
    "web-stopped": Entry(
        _GROUP, "stopped", "The notebook is stopped on the page: its job is gone, and accounted.",
        "`journalctl -u deepops-web-hub`, `sacct -j JOBID`",
    ),
}  # fmt: skip
