"""Runs inside a pod in place of a component: answers probes, and as an engine the calls of the sync agent.

Standard library only, read from this file and passed as `python -c`.
"""

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TARGET = "/etc/openclaw-target/target.json"
BASE = "0-00000000"


class State:
    version = BASE
    highest = 0
    paused = False
    lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path in ("/healthz", "/readyz"):
            self.answer({})
        elif self.path == "/state" and "OPENCLAW_AGENT_TOKEN" in os.environ:
            self.answer(
                {
                    "version": State.version,
                    "target": None,
                    "ready": True,
                    "paused": State.paused,
                    "highest_epoch": State.highest,
                    "phase": "syncing" if State.paused else "serving",
                    "sglang_version": "stand-in",
                    "checksum": State.version,
                    "error": None,
                }
            )
        else:
            self.answer({"error": {"message": "not here", "code": "not_found"}}, 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        token = os.environ.get("OPENCLAW_AGENT_TOKEN") or os.environ.get("OPENCLAW_GATEWAY_TOKEN")
        if self.headers.get("Authorization") != f"Bearer {token}":
            self.answer({"error": {"message": "wrong token", "code": "unauthorized"}}, 401)
        elif self.path == "/prepare":
            self.answer({"version": body["version"], "ready": True, "error": None, "seconds": 0.0})
        elif self.path == "/sync":
            self.sync(body)
        elif self.path == "/internal/paused":
            paused = body["lease_sec"] > 0
            self.answer({"epoch": body["epoch"], "pod_uid": "", "process_start": 0.0, "paused": paused})
        else:
            self.answer({"error": {"message": "not here", "code": "not_found"}}, 404)

    def sync(self, body: dict) -> None:
        """Takes as many seconds as the digest's first two digits say in tenths, so a test can slow a version down."""
        with State.lock:
            if body["epoch"] < State.highest:
                self.answer({"error": {"message": "old epoch", "code": "old_epoch"}}, 409)
                return
            State.highest, State.paused = body["epoch"], True
            wanted = int(body["version"].split("-")[1][:2], 16) / 10
            time.sleep(min(wanted, body["deadline_sec"]))
            if wanted <= body["deadline_sec"]:
                State.version = body["version"]
            State.paused = False
        ok = State.version == body["version"]
        error = None if ok else "too slow"
        seconds = {"pause_sec": wanted, "update_sec": wanted}
        self.answer({"epoch": body["epoch"], "version": State.version, "ok": ok, "error": error, **seconds})

    def answer(self, body: dict, status: int = 200) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: object) -> None:
        return


def main(ports: list[int]) -> None:
    if os.path.exists(TARGET):
        with open(TARGET) as file:
            State.version = json.load(file)["version"]
    servers = [ThreadingHTTPServer(("0.0.0.0", port), Handler) for port in ports]
    for server in servers[1:]:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    servers[0].serve_forever()


main([int(port) for port in sys.argv[1:]])
