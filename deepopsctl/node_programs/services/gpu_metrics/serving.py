"""Wait for a driver, serve its GPUs, and exit when they change: systemd then restarts the program."""

from __future__ import annotations

import socket
import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import pynvml
from prometheus_client import CollectorRegistry, Gauge, make_wsgi_app

from ..._shared.connections import BoundedServer, Connections, Log
from . import health, watched

_LOOK_AGAIN_S = 30.0
# a GPU is missing during a reset
_CHANGED_ROUNDS = 3
# time limit of a client for each of its messages; Prometheus keeps its connection
_PATIENCE_S = 10.0
_OF_ONE, _IN_ALL = 16, 64
# paths of a certificate, its key, and the authority of those who are answered
Tls = tuple[str, str, str]


def serve(address: str, port: int, interval: float, tls: Tls | None = None) -> int:
    """Listens from the beginning: a node without a driver answers that it has none."""
    registry = CollectorRegistry()
    up = Gauge("deepops_gpu_driver_up", "1 where NVIDIA's driver answers and has GPUs.", registry=registry)
    _listen(address, port, registry, tls)
    _wait_for_driver()
    hostname, devices = socket.gethostname(), watched.devices()
    exporter = watched.GpuExporter(devices, hostname, registry)
    whole = {gpu.index: gpu for gpu in devices if isinstance(gpu.index, int)}
    labels: Mapping[int, Any] = {index: (hostname, str(index), gpu.name(), gpu.uuid()) for index, gpu in whole.items()}
    state = health.Health(labels, registry)
    state.watch()
    up.set(1)
    _log(f"serving {len(whole)} GPUs")
    first, rounds = _present(), 0
    while rounds < _CHANGED_ROUNDS:
        exporter.update()
        state.update()
        time.sleep(interval)
        rounds = 0 if _present() == first else rounds + 1
    _log("the GPUs have changed: restarting")
    return 0


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE_S

    def log_message(self, *_words: Any) -> None:
        """A request a quarter of a minute is not news."""


class _Server(BoundedServer, WSGIServer):
    """With `tls`, it is made for a connection that has sent something, in that connection's own thread."""

    def __init__(self, place: tuple[str, int], tls: ssl.SSLContext | None) -> None:
        self.connections, self.log = Connections(_OF_ONE, _IN_ALL), Log(_log)
        self._tls = tls
        if ":" in place[0]:
            self.address_family = socket.AF_INET6
        super().__init__(place, _Handler)

    def server_bind(self) -> None:
        """As the base, without its question to name servers for this host's full name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer it."""
        if not self._tls:
            super().finish_request(request, client_address)
            return
        request.settimeout(_PATIENCE_S)
        if not request.recv(1, socket.MSG_PEEK):
            return
        with self._tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as encrypted:
            self.connections.remove(id(request))
            self.track(encrypted, id(request), client_address)
            encrypted.do_handshake()
            super().finish_request(encrypted, client_address)


def _listen(address: str, port: int, registry: CollectorRegistry, tls: Tls | None) -> None:
    """With certificates, which are read once: a renewed one takes a restart."""
    context = None
    if tls:
        certificate, key, authority = tls
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(authority)
    server = _Server((address, port), context)
    server.set_app(make_wsgi_app(registry))
    threading.Thread(target=server.serve_forever, daemon=True).start()


def _wait_for_driver() -> None:
    """A node may get its driver later, or lose it: log that once, and wait."""
    reported = ""
    while True:
        reason = _missing()
        if not reason:
            return
        if reason != reported:
            _log(f"{reason}: no GPU is served until that changes")
            reported = reason
        time.sleep(_LOOK_AGAIN_S)


def _missing() -> str:
    try:
        pynvml.nvmlInit()
        return "" if pynvml.nvmlDeviceGetCount() else "NVIDIA's driver has no GPU"
    except pynvml.NVMLError_LibraryNotFound:
        return "there is no NVIDIA driver (libnvidia-ml.so.1)"
    except pynvml.NVMLError as error:
        return f"NVIDIA's driver does not answer ({error})"


def _present() -> list[Any]:
    """UUIDs of GPUs and of their instances; of what does not answer, NVML's number for why."""
    devices: list[Any] = []
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            devices += _uuids(index)
    except pynvml.NVMLError as error:
        devices.append(error.value)
    return devices


def _uuids(index: int) -> list[Any]:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuids = [pynvml.nvmlDeviceGetUUID(handle)]
    except pynvml.NVMLError as error:
        return [(index, error.value)]
    try:
        for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            uuids += [pynvml.nvmlDeviceGetUUID(instance)]
    except pynvml.NVMLError:
        # there are no more of them
        return uuids
    return uuids


def _log(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
