#!/usr/bin/python3
"""A receiver of Alertmanager's messages, one JSON object a line. On Python's library alone, for a lab's node:

webhook.py --address 192.0.2.1 --port 9095 --file /tmp/messages
"""

from __future__ import annotations

import argparse
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def _server(address: str, port: int, path: Path) -> ThreadingHTTPServer:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock, path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(message) + "\n")
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    return ThreadingHTTPServer((address, port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--file", type=Path, required=True)
    options = parser.parse_args()
    _server(options.address, options.port, options.file).serve_forever()


if __name__ == "__main__":
    main()
