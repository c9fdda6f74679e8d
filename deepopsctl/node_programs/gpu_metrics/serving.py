"""Wait for a driver, serve its GPUs, and exit when they change: systemd then restarts the program."""

from __future__ import annotations

import socket
import sys
import time
from typing import Any, Callable, List, Mapping, Optional, Tuple

import pynvml
from prometheus_client import CollectorRegistry, Gauge, start_http_server

from . import health, watched

_LOOK_AGAIN_S = 30.0
# a GPU is missing during a reset
_CHANGED_ROUNDS = 3
# time limit of a client for the TLS handshake and its request
_PATIENCE_S = 30.0
# paths of a certificate, its key and the authority, and the name of the one who is answered
Tls = Tuple[str, str, str, str]


def serve(address: str, port: int, interval: float, tls: Optional[Tls] = None) -> int:
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
    _log("serving {} GPUs".format(len(whole)))
    first, rounds = _present(), 0
    while rounds < _CHANGED_ROUNDS:
        exporter.update()
        state.update()
        time.sleep(interval)
        rounds = 0 if _present() == first else rounds + 1
    _log("the GPUs have changed: restarting")
    return 0


def _listen(address: str, port: int, registry: CollectorRegistry, tls: Optional[Tls]) -> None:
    """With certificates, which are read once: a renewed one takes a restart."""
    if not tls:
        start_http_server(port, address, registry)
        return
    certificate, key, authority, client = tls
    server, _ = start_http_server(
        port, address, registry, certfile=certificate, keyfile=key, client_cafile=authority, client_auth_required=True
    )
    # in each connection's own thread: a silent client must not block the others
    server.socket.do_handshake_on_connect = False
    server.finish_request = _only_to(client, server.finish_request)
    server.handle_error = _refused


def _only_to(client: str, answer: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Accepts a connection only if its certificate has that name: Python's TLS can't check that for clients."""

    def checked(connection: Any, address: Any) -> None:
        connection.settimeout(_PATIENCE_S)
        connection.do_handshake()
        names = [name for _, name in connection.getpeercert().get("subjectAltName", ())]
        if client not in names:
            raise PermissionError("its certificate is for {}".format(", ".join(names) or "nobody"))
        answer(connection, address)

    return checked


def _refused(_request: Any, client: Any) -> None:
    _log("refused {}: {}".format(client[0], sys.exc_info()[1]))


def _wait_for_driver() -> None:
    """A node may get its driver later, or lose it: log that once, and wait."""
    reported = ""
    while True:
        reason = _missing()
        if not reason:
            return
        if reason != reported:
            _log("{}: no GPU is served until that changes".format(reason))
            reported = reason
        time.sleep(_LOOK_AGAIN_S)


def _missing() -> str:
    try:
        pynvml.nvmlInit()
        return "" if pynvml.nvmlDeviceGetCount() else "NVIDIA's driver has no GPU"
    except pynvml.NVMLError_LibraryNotFound:
        return "there is no NVIDIA driver (libnvidia-ml.so.1)"
    except pynvml.NVMLError as error:
        return "NVIDIA's driver does not answer ({})".format(error)


def _present() -> List[Any]:
    """UUIDs of GPUs and of their instances; of what does not answer, NVML's number for why."""
    devices: List[Any] = []
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            devices += _uuids(index)
    except pynvml.NVMLError as error:
        devices.append(error.value)
    return devices


def _uuids(index: int) -> List[Any]:
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
