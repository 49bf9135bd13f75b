"""The requests being served: what each may wait for, and one loop that looks after all of them.

```
 loop: every second ──▶ each exchange:  the engine is silent for too long  ─▶ 504, or an error frame
                                        the client reads nothing           ─▶ cut, the engine is told to stop
                                        a stream is quiet                  ─▶ an event that says nothing
```
One loop for all of them, because a timer per request and chunk costs more than the work. An engine that is paused by a
weight sync is not silent. The number of requests is bounded from their first header on.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from openclaw_gateway import asgi, errors
from openclaw_gateway.faces import Face, Stream

_log = logging.getLogger(__name__)
LOOK_EVERY_SEC = 1.0
_JSON_HEADERS = {"content-type": "application/json"}
_STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


@dataclass(frozen=True)
class Limits:
    first_token_sec: float = 600.0
    """Silence of an engine before it answers at all; of a non-stream, that is the whole answer."""
    idle_sec: float = 300.0
    """Silence of an engine within a stream."""
    client_sec: float = 60.0
    """How long a client may leave what it is sent unread."""
    ping_sec: float = 12.0
    """Silence to a stream's client after which it gets an event that says nothing."""
    most: int = 1024
    """Requests at once, those that are still being read included."""


class ClientLostError(errors.ApiError):
    """Nobody reads the answer."""


class ClientLeftError(ClientLostError):
    """The client closed its connection."""

    def __init__(self) -> None:
        super().__init__(499, "the client closed its connection", code="client_gone")


class ClientStuckError(ClientLostError):
    """The client keeps its connection and reads nothing."""

    def __init__(self) -> None:
        super().__init__(408, "the client does not read its answer", code="client_stuck")


class Exchange:
    """One request at an engine and the answer on its way to the client; `task` does the work."""

    def __init__(
        self,
        face: Face,
        request_id: str,
        headers: Mapping[str, str],
        send: asgi.Send,
        *,
        streams: bool,
        now: float,
        client: asgi.Client | None = None,
    ) -> None:
        self._face, self._request_id, self._headers, self._send = face, request_id, headers, send
        self._streams, self._client = streams, client
        self._voice: Stream | None = face.stream() if streams else None
        self.task: asyncio.Task[None] | None = None
        self.verdict: errors.ApiError | None = None
        """Why the loop ended it."""
        self.began = self.done = self.answering = False
        self.heard_at = self._wrote_at = now
        self._writing_since: float | None = None
        self._pinging: asyncio.Task[None] | None = None

    # ------------------------------------------------------------ to the client

    async def stream(self, events: bytes, now: float) -> None:
        """Chat events that just came from the engine."""
        self.answering, self.heard_at = True, now
        if self._voice is not None:
            events = self._voice.feed(events)
        if events:
            await self._write(events, now)

    def takes(self) -> bool:
        """The client keeps up with a stream that has begun: `stream_at_once` may be used."""
        return self._client is not None and self.began and self._pinging is None and self._client.takes()

    def stream_at_once(self, events: bytes, now: float) -> None:
        """The same as `stream`, without waiting for anything."""
        self.answering, self.heard_at = True, now
        if self._voice is not None:
            events = self._voice.feed(events)
        if events and self._client is not None:
            self._wrote_at = now
            self._client.write(events)

    async def end_stream(self, events: bytes, now: float) -> None:
        """The last events; the response is complete."""
        self.done = True
        await self._write(self._voice.feed(events) if self._voice is not None else events, now, more=False)

    async def reply(self, payload: bytes) -> None:
        self.done = True
        if self._client is not None and self._client.reads():
            self._client.answer(_JSON_HEADERS | dict(self._headers), payload)
        else:
            await asgi.json_answer(self._send, 200, payload, self._headers)

    async def fail(self, error: errors.ApiError, now: float) -> None:
        """A refusal; in a stream that has begun, an error frame."""
        await self._pinged()
        if self.began:
            await self.fail_stream(error.frame(), now)
            return
        self.done = True
        body = self._face.error(error, self._request_id)
        await asgi.json_answer(self._send, error.status, body, dict(self._headers) | error.headers())

    async def fail_stream(self, frame: bytes, now: float) -> None:
        """The response stays open-ended: the server then cuts the connection, so that nobody takes it for whole."""
        self.done = True
        await self._write(frame if self._voice is None else self._voice.failure(frame), now)

    async def _write(self, data: bytes, now: float, *, more: bool = True) -> None:
        await self._pinged()
        self._writing_since = now
        if not self.began:
            self.began = True
            await asgi.start(self._send, 200, _STREAM_HEADERS | dict(self._headers))
        await asgi.body(self._send, data, more=more)
        self._writing_since, self._wrote_at = None, now

    async def _pinged(self) -> None:
        """Nothing else is being written any more, or will be."""
        if self._pinging is not None:
            await asyncio.wait([self._pinging])

    # ------------------------------------------------------------ looked after

    def look(self, limits: Limits, now: float, *, paused: bool) -> None:
        """End it when somebody was silent for too long; keep a quiet stream alive."""
        if self.task is None or self.task.done() or self.verdict is not None:
            return
        if self._writing_since is not None:
            if now - self._writing_since > limits.client_sec:
                self.end(ClientStuckError())
                if self._client is not None:
                    self._client.abort()  # to close it would be to wait until it reads
            return
        if self.done:
            return
        if paused:
            self.heard_at = now
        if now - self.heard_at > (limits.idle_sec if self.answering else limits.first_token_sec):
            words = "stopped in the middle of its answer" if self.answering else "did not answer in time"
            self.end(errors.timed_out(f"the engine {words}"))
        elif self._streams and self._pinging is None and now - self._wrote_at >= limits.ping_sec:
            self._pinging = asyncio.create_task(self._ping(now))

    def gone(self) -> None:
        """The client closed its connection."""
        self.end(ClientLeftError())

    def end(self, verdict: errors.ApiError) -> None:
        """Stop the work; what it raises then is `verdict`."""
        if self.task is not None and self.verdict is None:
            self.verdict = verdict
            self.task.cancel()

    def ended(self) -> errors.ApiError | None:
        """In the handler of the task's CancelledError: the verdict, if it was ours and not somebody else's."""
        if self.verdict is not None and self.task is not None:
            self.task.uncancel()
        return self.verdict

    async def _ping(self, now: float) -> None:
        self._writing_since = now
        try:
            if not self.began:
                self.began = True
                await asgi.start(self._send, 200, _STREAM_HEADERS | dict(self._headers))
            await asgi.body(self._send, self._face.ping, more=True)
        finally:
            self._writing_since, self._wrote_at, self._pinging = None, now, None


class Exchanges:
    """`paused` says whether a weight sync is on."""

    def __init__(self, limits: Limits, *, paused: Callable[[], bool], clock: Callable[[], float]) -> None:
        self.limits, self._paused, self._clock = limits, paused, clock
        self.now = clock()
        """The time at the last look: exact enough, and free."""
        self.open = 0
        self._exchanges: set[Exchange] = set()

    def enter(self) -> None:
        """Take room for one request. Raises ApiError 503 when there is none."""
        if self.open >= self.limits.most:
            raise errors.overloaded()
        self.open += 1

    def leave(self) -> None:
        self.open -= 1

    def add(self, exchange: Exchange) -> None:
        self._exchanges.add(exchange)

    def discard(self, exchange: Exchange) -> None:
        self._exchanges.discard(exchange)

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            self.now = self._clock()
            paused = self._paused()
            for exchange in list(self._exchanges):
                exchange.look(self.limits, self.now, paused=paused)
            await asyncio.sleep(LOOK_EVERY_SEC)

    def end_all(self, verdict: Callable[[], errors.ApiError]) -> None:
        """The process stops and waits no longer."""
        if self._exchanges:
            _log.warning("%d requests are cut off: the gateway stops", len(self._exchanges))
        for exchange in list(self._exchanges):
            exchange.end(verdict())
