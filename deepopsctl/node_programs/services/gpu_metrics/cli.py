"""The command line of `deepops-gpumetrics`: its libraries are in a separate directory."""

from __future__ import annotations

import argparse
import sys


def main() -> int:
    """Serve until the GPUs change."""
    parser = argparse.ArgumentParser(prog="deepops-gpumetrics", description="A node's GPUs for Prometheus.")
    parser.add_argument("--libraries", required=True, help="where nvitop-exporter and what it needs are unpacked")
    parser.add_argument("--address", required=True, help="where to listen")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--interval", type=float, default=10.0, help="seconds between two readings")
    parser.add_argument("--certificate", help="serve https with it")
    parser.add_argument("--key", help="the certificate's")
    parser.add_argument("--authority", help="certificate authority of those who may scrape it")
    options = parser.parse_args()
    tls = (options.certificate, options.key, options.authority)
    if tls != (None,) * len(tls) and not all(tls):
        parser.error("--certificate, --key and --authority go together")
    sys.path.insert(0, options.libraries)
    from .serving import serve

    return serve(options.address, options.port, options.interval, tls if all(tls) else None)
