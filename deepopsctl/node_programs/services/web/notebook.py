"""What the job of a notebook runs on a compute node, as its user, with the Python of JupyterHub's environment.

It tells JupyterHub its port, gets the certificate for it, and starts the notebook server. Who has no certificate of the
web pages' proxy can't open a connection to that. Kernels have sockets in a directory of the user's, in place of ports.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

AUTHORITY = "/etc/deepopsctl/web/notebooks.crt"
# kernels, and which extensions the server has
KERNELS, EXTENSIONS = "/etc/deepopsctl/web/jupyter", "/etc/deepopsctl/web/jupyter/config"
SETTINGS = "/etc/deepopsctl/web/notebook.json"
TRIES, PAUSE_S = 5, 3.0
LONGEST = 36
# isolated, Python looks for modules in its environment alone
_SERVER = f"""\
import sys
sys.path.append({os.path.abspath(__file__).partition("/node_programs/")[0]!r})
from jupyterhub.singleuser import main
sys.exit(main())
"""


def main() -> int:
    """Run the server until it ends; returns its exit status."""
    port = free_port()
    try:
        answer = introduce(port)
    except OSError as error:
        sys.stderr.write(f"error: JupyterHub does not answer this job: {error}\n")
        return 1
    # kernels have sockets in it, whose paths can't be long
    place = tempfile.gettempdir()
    directory = tempfile.mkdtemp(prefix="notebook-", dir=place if len(place) <= LONGEST else "/tmp")  # noqa: S108 (its mode is 0700)
    try:
        return serve(port, answer, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def serve(port: int, answer: dict[str, str], directory: str) -> int:
    """The server, with its key in the directory."""
    paths = {name: os.path.join(directory, name) for name in ("key", "certificate", "authority")}
    for name, path in paths.items():
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            stream.write(answer[name])
    os.environ.update(
        JUPYTERHUB_SSL_KEYFILE=paths["key"],
        JUPYTERHUB_SSL_CERTFILE=paths["certificate"],
        JUPYTERHUB_SSL_CLIENT_CA=paths["authority"],
        JUPYTERHUB_SERVICE_URL=service_url(port),
        JUPYTER_RUNTIME_DIR=directory,
        JUPYTER_PATH=KERNELS,
        JUPYTER_CONFIG_PATH=EXTENSIONS,
    )
    with open(SETTINGS, encoding="utf-8") as stream:
        options = [f"--{name}={value}" for name, value in json.load(stream)["options"].items()]
    with subprocess.Popen([sys.executable, "-I", "-c", _SERVER, *options]) as process:
        # what ends the job ends the server first, so that the directory is removed
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        return process.wait()


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        port: int = listener.getsockname()[1]
        return port


def introduce(port: int) -> dict[str, str]:
    """Tell JupyterHub the port; the certificate, its key, and who signed it. Raises OSError."""
    url = os.environ["JUPYTERHUB_API_URL"] + "/notebook"
    headers = {"Authorization": "token " + os.environ["JUPYTERHUB_API_TOKEN"], "Content-Type": "application/json"}
    body = json.dumps({"port": port, "job": os.environ.get("SLURM_JOB_ID", "")}).encode()
    context = ssl.create_default_context(cafile=AUTHORITY)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    for left in reversed(range(TRIES)):
        try:
            with opener.open(urllib.request.Request(url, body, headers), timeout=30) as response:  # noqa: S310 (the scheme is https)
                answer: dict[str, str] = json.load(response)
                return answer
        except OSError:
            if not left:
                raise
            time.sleep(PAUSE_S)
    raise OSError("no answer")


def service_url(port: int) -> str:
    """Where the server listens: on all addresses of the node, with TLS."""
    path = urllib.parse.urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"]).path
    return f"https://0.0.0.0:{port}{path}"


if __name__ == "__main__":
    sys.exit(main())
