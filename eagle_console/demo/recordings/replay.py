"""Prints a recorded run of a stage with its timing. Standard library only: it runs on any Python from 3.9 on.

    python replay.py RECORDING --port PORT [--speed FACTOR]

A recording is JSON lines: a header ``{"recorded", "vllm", "what"}``, then ``{"at": seconds, "text": piece of output}``.
Where the recording says that a server has started, this listens on 127.0.0.1:PORT from that moment on: ``/health``
answers 200, everything else 503, until SIGTERM. Any other recording ends with exit code 0 after its last piece.
"""

from __future__ import annotations

import argparse
import json
import signal
import socketserver
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

STARTED = "Application startup complete"


class Handler(BaseHTTPRequestHandler):
    """Says that the replayed server is healthy, and to everything else that there is none."""

    def answer(self) -> None:
        healthy = self.path.split("?")[0] == "/health"
        body = b"" if healthy else b'{"error": "this is a replay"}\n'
        self.send_response(200 if healthy else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 (names of the standard library)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the output is the recording's."""


class Server(socketserver.ThreadingMixIn, HTTPServer):
    """Takes the port at once, as vLLM does, but listens only when ``server_activate`` is called."""

    daemon_threads = True

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # without HTTPServer's look-up of the host's name


def replay(path: str, port: int, speed: float) -> int:
    """Prints the recording; returns the exit code."""
    with open(path, encoding="utf-8") as file:
        header, *pieces = [json.loads(line) for line in file if line.strip()]
    say(f"REPLAY of a run recorded on {header['recorded']} with vLLM {header['vllm']}; nothing is computed here.\n")
    say(f"Recorded command: {header['what']}\n")
    server = None
    if any(STARTED in piece["text"] for piece in pieces):
        server = Server(("127.0.0.1", port), Handler, bind_and_activate=False)
        try:
            server.server_bind()
        except OSError as error:
            say(f"ERROR:    [Errno {error.errno}] error while attempting to bind on address ('127.0.0.1', {port})\n")
            return 1
    start = time.monotonic()
    for piece in pieces:
        time.sleep(max(0.0, start + piece["at"] / speed - time.monotonic()))
        if server and STARTED in piece["text"]:
            server.server_activate()
            threading.Thread(target=server.serve_forever, daemon=True).start()
        say(piece["text"])
    while server:
        signal.pause()
    return 0


def say(text: str) -> None:
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description="print a recorded run with its timing")
    parser.add_argument("recording")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--speed", type=float, default=1.0)
    arguments = parser.parse_args()
    if arguments.speed <= 0:
        parser.error("--speed must be above 0")
    # The handler ends the process: setting an Event from it can wait for ever for the lock that Event.wait holds.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    return replay(arguments.recording, arguments.port, arguments.speed)


if __name__ == "__main__":
    sys.exit(main())
