#!/usr/bin/python3
"""`replay`: an exporter that serves made-up text of a GPU exporter. No GPU is behind it.

It stands where a GPU exporter would, so that rules, alerts and panels of GPUs meet real names and labels in a real
Prometheus. texts/README.md says where each text comes from. On Python's library alone, so that it runs on a lab's node:

    replay.py dcgm --port 9400 [--address 127.0.0.1]
"""

from __future__ import annotations

import argparse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TEXTS = Path(__file__).with_name("texts")


def _server(kind: str, address: str, port: int) -> ThreadingHTTPServer:
    body = (TEXTS / f"{kind}.prom").read_bytes()

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A scrape every few seconds is not news."""

    return ThreadingHTTPServer((address, port), Metrics)


def main() -> None:
    parser = argparse.ArgumentParser(prog="replay", description="Serve made-up text of a GPU exporter.")
    parser.add_argument("kind", choices=("dcgm", "nvitop"))
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    _server(options.kind, options.address, options.port).serve_forever()


if __name__ == "__main__":
    main()
