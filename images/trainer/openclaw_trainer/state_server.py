"""HTTP on port 8300: /healthz, /readyz, /metrics and /state. Read only, no secrets, no authentication."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from aiohttp import web

from openclaw_trainer.state import State


def build(state: State) -> web.Application:
    """The application; answers from memory and never waits for the trainer."""

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response({"ok": True})

    async def readyz(_: web.Request) -> web.Response:
        ready = state.numbers.phase not in ("starting", "waiting_for_model", "failed")
        return web.json_response({"phase": state.numbers.phase}, status=200 if ready else 503)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=state.metrics(), content_type="text/plain", charset="utf-8")

    async def snapshot(_: web.Request) -> web.Response:
        return web.Response(text=state.snapshot().model_dump_json(), content_type="application/json")

    application = web.Application()
    routes = {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics, "/state": snapshot}
    application.add_routes([web.get(path, handler) for path, handler in routes.items()])
    return application


async def serve(state: State, port: int) -> None:
    """Serve until cancelled."""
    runner = web.AppRunner(build(state), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


class _Follower(BaseHTTPRequestHandler):
    """A follower has no state of its own: once it has met the others it is alive and ready."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path in ("/healthz", "/readyz") else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Probes are not worth a line."""


def serve_follower(port: int) -> None:
    """Answer the probes of a pod without the lead, from a thread that ends with the process."""
    server = ThreadingHTTPServer(("", port), _Follower)
    threading.Thread(target=server.serve_forever, name="probes", daemon=True).start()
