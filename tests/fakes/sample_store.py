"""The trainer's side of the experience store, in memory, over real HTTP.

Same verbs, paths and refusals as the gateway's internal port; leases run out only when a test says so. `fail_next`
makes the next calls of a verb answer 503, as a gateway that restarts does.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import ValidationError

from openclaw_core import wire

TOKEN = "token-of-the-test"


class SampleStore:
    """Samples are queued, leased, trained or dropped; every transition is kept for assertions."""

    def __init__(self) -> None:
        self.queue: list[wire.Sample] = []
        self.leased: dict[int, wire.Sample] = {}
        self.trained: dict[int, str] = {}
        """Sample id → version of the ack."""
        self.dropped: dict[int, str] = {}
        self.calls: Counter[str] = Counter()
        self.fail_next: Counter[str] = Counter()
        self.epoch = 0
        self.on_ack: Callable[[wire.AckSamples], None] | None = None

    def add(self, samples: Iterable[wire.Sample]) -> None:
        self.queue += samples

    def expire_leases(self) -> None:
        """Leased samples return to the front of the queue, as after a trainer's death."""
        self.queue = [*self.leased.values(), *self.queue]
        self.leased.clear()

    async def handle(self, request: web.Request) -> web.Response:
        verb = request.match_info["verb"]
        self.calls[verb] += 1
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _error(401, "wrong token")
        if self.fail_next[verb] > 0:
            self.fail_next[verb] -= 1
            return _error(503, "restarting")
        try:
            return await self._verbs()[verb](await request.read())
        except ValidationError as error:
            return _error(400, str(error))

    async def stats(self, _: web.Request) -> web.Response:
        return _reply(wire.Stats(trainer_epoch=self.epoch))

    def _verbs(self) -> dict[str, Callable[[bytes], Awaitable[web.Response]]]:
        return {
            "lease": self._lease,
            "extend": self._extend,
            "ack": self._ack,
            "drop": self._drop,
            "release": self._release,
        }

    async def _lease(self, body: bytes) -> web.Response:
        request = wire.LeaseSamples.model_validate_json(body)
        if self._outdated(request.trainer_epoch):
            return _error(409, "an older trainer epoch")
        if len(self.queue) < request.min_batch:
            return _reply(wire.LeasedSamples(lease="", samples=[]))
        chosen, self.queue = self.queue[: request.batch], self.queue[request.batch :]
        self.leased.update({sample.id: sample for sample in chosen})
        return _reply(wire.LeasedSamples(lease="lease", samples=chosen))

    async def _extend(self, body: bytes) -> web.Response:
        request = wire.ExtendSamples.model_validate_json(body)
        return _reply(wire.Accepted(ids=[i for i in request.ids if i in self.leased]))

    async def _ack(self, body: bytes) -> web.Response:
        request = wire.AckSamples.model_validate_json(body)
        if self._outdated(request.trainer_epoch):
            return _error(409, "an older trainer epoch")
        if self.on_ack is not None:
            self.on_ack(request)
        self.queue = [sample for sample in self.queue if sample.id not in request.ids]
        for identity in request.ids:
            self.leased.pop(identity, None)
            self.trained.setdefault(identity, request.version)
        return _reply(wire.Accepted(ids=request.ids))

    async def _drop(self, body: bytes) -> web.Response:
        request = wire.DropSamples.model_validate_json(body)
        for identity in request.ids:
            self.leased.pop(identity, None)
            self.dropped[identity] = request.reason
        return _reply(wire.Accepted(ids=request.ids))

    async def _release(self, body: bytes) -> web.Response:
        request = wire.ReleaseSamples.model_validate_json(body)
        self.queue = [self.leased.pop(i) for i in request.ids if i in self.leased] + self.queue
        return _reply(wire.Accepted(ids=request.ids))

    def _outdated(self, epoch: int) -> bool:
        self.epoch = max(self.epoch, epoch)
        return epoch < self.epoch


@asynccontextmanager
async def serving(store: SampleStore) -> AsyncIterator[str]:
    """Serve `store` on a free port; yields the base URL."""
    application = web.Application()
    routes = [web.post("/internal/samples/{verb}", store.handle), web.get("/internal/stats", store.stats)]
    application.add_routes(routes)
    server = TestServer(application)
    await server.start_server()
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        await server.close()


def _reply(message: wire.Message) -> web.Response:
    return web.Response(text=message.model_dump_json(), content_type="application/json")


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": str(status)}}, status=status)
