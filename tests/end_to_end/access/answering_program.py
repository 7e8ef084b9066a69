"""What the tests of services run as a replica: says one word, slowly when asked to, and is ready after a moment."""

from __future__ import annotations

import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answers(BaseHTTPRequestHandler):
    """Each request gets the word that the program was given; ``/slow`` takes its time."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer."""
        if self.path == "/slow":
            time.sleep(0.5)
        body = sys.argv[1].encode()
        status = 503 if self.path == "/ready" and sys.argv[1] == "never" else 200
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


if __name__ == "__main__":
    if sys.argv[1] == "broken":
        sys.exit("this version cannot start")
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["MILLPOND_PORT"])), Answers).serve_forever()
