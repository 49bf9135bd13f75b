"""A request for an answer, from the first header to the committed turn. Raw ASGI: this is the hot route.

Every face (chat completions, Anthropic's messages, text completions) comes through here.

auth → paused → body → session match, next state, admission (one transaction) → engine → client. The turn is begun
before the engine hears of it and finished before the client gets the last frame; whoever dies in between leaves a
turn that the store can account for.
"""

import asyncio
import logging
import traceback
from collections.abc import Mapping
from dataclasses import dataclass

from openclaw_gateway import asgi, conversation, engine_http, errors, identifiers, recording
from openclaw_gateway.chat_requests import ChatRequest, retries_of
from openclaw_gateway.exchanges import ClientLostError, Exchange, Exchanges
from openclaw_gateway.faces import Face
from openclaw_gateway.gate import Gate
from openclaw_gateway.keys import Caller, Keys
from openclaw_gateway.metrics import Metrics
from openclaw_gateway.probes import Probes
from openclaw_gateway.relay import Relay
from openclaw_gateway.replies import NO_REPLY, Reply
from openclaw_gateway.store.schema import Drop, Untracked
from openclaw_gateway.store.sessions import Arrival
from openclaw_gateway.store.store import Store
from openclaw_gateway.store.turns import Admission, Begun, Finished, Refusal, Refused, Unrecorded
from openclaw_gateway.store.writer import StoreUnavailableError
from openclaw_gateway.upstream import Call, Upstream

_log = logging.getLogger(__name__)
_ENGINES_FAULT = frozenset({"upstream_error", "upstream_busy", "upstream_cut", "upstream_aborted", "upstream_timeout"})
"""Codes of a turn that the engine failed."""


@dataclass(frozen=True)
class ChatSettings:
    """What the route needs of the configuration."""

    served_name: str
    default_main: bool
    blocks_when_full: bool
    block_timeout_sec: float
    serve_when_store_down: bool


def _session_header(name: str) -> dict[str, str]:
    """A session named in the body may hold characters that no header may."""
    return {"x-session-id": name} if name.isascii() and name.isprintable() else {}


@dataclass
class _Turn:
    """A request being served: recorded if it has an id, else counted under `reason` at its end."""

    face: Face
    request: ChatRequest
    request_id: str
    caller: Caller
    turn_id: int | None
    reason: str | None
    session: str
    headers: dict[str, str]
    call: Call | None = None
    """The engine that works on it, or did when it ended."""

    @property
    def recorded(self) -> bool:
        return self.turn_id is not None

    @property
    def opted_out(self) -> bool:
        """Its answer is read too, in memory: whatever quotes it later must be known."""
        return self.reason == Untracked.OPT_OUT or (self.request.opt_out and not self.request.completion)

    def asks(self, call: Call | None) -> None:
        self.call = call


class Chat:
    def __init__(
        self,
        settings: ChatSettings,
        keys: Keys,
        store: Store,
        gate: Gate,
        upstream: Upstream,
        probes: Probes,
        metrics: Metrics,
        exchanges: Exchanges,
    ) -> None:
        self._settings, self._keys, self._store, self._gate = settings, keys, store, gate
        self._upstream, self._probes, self._metrics = upstream, probes, metrics
        self._exchanges = exchanges

    async def __call__(self, face: Face, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        headers = asgi.headers_of(scope)
        request_id = asgi.request_id(headers)
        client = asgi.client_of(scope, receive)
        try:
            self._exchanges.enter()
            try:
                turn = await self._admit(face, headers, receive, client, request_id)
                await self._serve(turn, client, send)
            finally:
                self._exchanges.leave()
        except asgi.ClientGoneError:
            return
        except errors.ApiError as error:
            await self._refuse(face, error, request_id, send)
        except Exception as error:  # the outermost frame of a request
            await self._refuse(face, _fault(error, request_id), request_id, send)

    async def _refuse(self, face: Face, error: errors.ApiError, request_id: str, send: asgi.Send) -> None:
        self._metrics.refused(error.code or str(error.status))
        body = face.error(error, request_id)
        await asgi.json_answer(send, error.status, body, face.headers(request_id) | error.headers())

    # ------------------------------------------------------------ before the engine

    async def _admit(
        self, face: Face, headers: Mapping[str, str], receive: asgi.Receive, client: asgi.Client, request_id: str
    ) -> _Turn:
        caller = self._keys.caller(headers)
        self._metrics.asked(caller.name, face.path)
        raw = await asgi.read_body(receive, client)
        if self._gate.is_on():
            await asgi.unless_gone(receive, self._gate.enter(retries_of(headers)))
        else:
            await self._gate.enter()
        request = face.parse(headers, raw, default_main=self._settings.default_main)
        admission = await self._arrive(caller.owner, request, receive)
        if isinstance(admission, Refused):
            raise errors.too_many(admission.code, self._store.retry_after(admission.code))
        session = admission.session or request.session or request_id
        answer = face.headers(request_id)
        if isinstance(admission, Begun):
            answer |= _session_header(admission.session)
            return _Turn(face, request, request_id, caller, admission.turn_id, None, session, answer)
        return _Turn(face, request, request_id, caller, None, admission.reason, session, answer)

    async def _arrive(self, owner: str, request: ChatRequest, receive: asgi.Receive) -> Admission:
        if request.completion:
            return Unrecorded(Untracked.COMPLETION, request.session)
        if not request.main and not request.opt_out:
            if request.done and request.session is not None:
                await self._store.end_session(owner, request.session)
            return Unrecorded(Untracked.SIDE, request.session)
        arrival = Arrival(
            owner=owner,
            session=request.session,
            done=request.done,
            messages=request.messages,
            outline=request.outline,
            hints=request.hints(),
            body_hash=request.body_hash,
            idempotency_key=request.idempotency_key,
            is_retry=request.is_retry,
            gateway=self._store.gateway,
            untracked=request.untracked,
            opt_out=request.opt_out,
        )
        try:
            admission = await self._store.arrive(arrival)
            full = isinstance(admission, Refused) and admission.code is Refusal.QUEUE_FULL
            if full and self._settings.blocks_when_full:
                waiting = self._store.wait_for_room(arrival, self._settings.block_timeout_sec)
                return await asgi.unless_gone(receive, waiting)
        except StoreUnavailableError as error:
            _log.error("the experience store failed: %s", error)
            if self._settings.serve_when_store_down:
                if request.opt_out:
                    await self._store.opt_out(arrival)
                return Unrecorded(Untracked.STORE_DOWN, request.session)
            raise errors.store_down() from error
        return admission

    # ------------------------------------------------------------ with the engine

    async def _serve(self, turn: _Turn, client: asgi.Client, send: asgi.Send) -> None:
        """Run the turn; a client that goes ends it."""
        now = self._exchanges.now
        exchange = Exchange(
            turn.face, turn.request_id, turn.headers, send, streams=turn.request.stream, now=now, client=client
        )
        exchange.task = asyncio.current_task()
        self._exchanges.add(exchange)
        client.watch(exchange.gone)
        try:
            await self._exchange(turn, exchange)
        except asyncio.CancelledError:
            if exchange.ended() is None:
                raise
            await self._end(turn, Drop.CLIENT_GONE)  # it was told of another failure just then
        except Exception as error:  # the outermost frame of a turn: a fault of ours ends it too
            fault = _fault(error, turn.request_id)
            await self._end(turn, Drop.UPSTREAM_ERROR)
            self._metrics.answered("internal_error")
            if not exchange.done:
                await exchange.fail(fault, self._exchanges.now)
        finally:
            client.end()
            self._exchanges.discard(exchange)

    async def _exchange(self, turn: _Turn, exchange: Exchange) -> None:
        face = turn.face
        body = face.upstream(
            turn.request, model=self._settings.served_name, rid=identifiers.draw(), recorded=turn.recorded
        )
        try:
            asked = self._upstream.post(turn.session, face.engine_path, body, turn.asks)
            with self._metrics.in_flight(), await asked as call:
                if call.status != 200:
                    raise errors.from_engine(call.status, await call.read())
                if turn.request.stream:
                    await self._stream(turn, call, exchange)
                else:
                    await self._reply(turn, call, exchange)
        except errors.ApiError as error:
            await self._failed(turn, exchange, error)
        except asyncio.CancelledError:
            verdict = exchange.ended()
            if verdict is None:
                raise
            await self._failed(turn, exchange, verdict)

    async def _failed(self, turn: _Turn, exchange: Exchange, error: errors.ApiError) -> None:
        code = error.code or str(error.status)
        if code in _ENGINES_FAULT:
            self._blame(turn)
        if isinstance(error, ClientLostError):
            await self._end(turn, Drop.CLIENT_GONE)
            self._metrics.answered(code)
            return  # nothing reaches this client; the server cuts it off
        # Never sent, or refused by the engine as the client's mistake: it was no turn.
        unsent = error.code in errors.NEVER_SENT or error.status < 500
        lost = Drop.GATEWAY_LOST if error.code == errors.STOPPING else Drop.UPSTREAM_ERROR
        await self._end(turn, None if unsent else lost)
        (self._metrics.refused if unsent else self._metrics.answered)(code)
        await exchange.fail(error, self._exchanges.now)

    def _blame(self, turn: _Turn) -> None:
        """The engine failed the turn; unless a weight sync fell into it, which may abort turns on purpose."""
        if turn.call is not None and turn.call.epoch == self._gate.pause.epoch:
            turn.call.broken()

    async def _reply(self, turn: _Turn, call: Call, exchange: Exchange) -> None:
        payload = await call.read()
        try:
            reply = Reply(payload, keep_logprobs=turn.request.wants_logprobs)
            if call.keeps_version:
                reply.name_version(call.version)
            answer = None if turn.request.completion else reply.answer(turn.request.sampling)
            aborted, usage = reply.is_aborted, reply.usage
            said = b"" if aborted else turn.face.reply(reply.stripped())
        except NO_REPLY as error:
            raise errors.bad_gateway("the engine's answer is not a completion") from error
        if aborted:
            raise errors.bad_gateway("the engine aborted the turn", "upstream_aborted")
        call.served()
        self._metrics.used(turn.caller.name, usage.prompt_tokens, usage.completion_tokens)
        await self._finish(turn, answer)
        self._metrics.answered("ok")
        await exchange.reply(said)

    async def _stream(self, turn: _Turn, call: Call, exchange: Exchange) -> None:
        recorder = recording.StreamRecorder() if turn.recorded or turn.opted_out else None
        relay = Relay(
            recorder,
            cut_logprobs=turn.recorded and not turn.request.wants_logprobs,
            cut_usage=not turn.request.wants_usage,
            choices=turn.request.choices,
        )
        if recorder is not None:
            recorder.version(call.version)

        def take(chunk: bytes) -> bool:
            """The hot path of a token: from socket to socket."""
            if recorder is None or not exchange.takes():
                return False
            recorder.version(call.version_now)
            events = relay.usual(chunk)
            if events:
                exchange.stream_at_once(events, self._exchanges.now)
            return bool(events)

        try:
            while chunk := await call.chunk():
                if recorder is not None:
                    recorder.version(call.version_now)
                await exchange.stream(relay.feed(chunk), self._exchanges.now)
                if relay.end is not None:
                    break
                await call.pass_on(take)
        except engine_http.EngineHttpError as error:
            _log.warning("the stream of %s broke: %r", call.engine.address, error)
        relay.cut_off()
        if relay.error is not None:
            if not exchange.began:
                raise relay.error  # a status, after which clients try again by themselves
            self._blame(turn)
            await self._end(turn, Drop.UPSTREAM_ERROR)
            self._metrics.answered("upstream_error")
            await exchange.fail_stream(relay.error_frame, self._exchanges.now)
            return
        call.served()
        answer = None
        if recorder is not None:
            answer = recorder.answer(await self._end_version(call), turn.request.sampling)
        self._metrics.used(turn.caller.name, relay.usage.prompt_tokens, relay.usage.completion_tokens)
        await self._finish(turn, answer)
        self._metrics.answered("ok")
        await exchange.end_stream(relay.held(), self._exchanges.now)
        await call.drain()

    async def _end_version(self, call: Call) -> str | None:
        """The version now; asked for again when a hold fell into the stream."""
        if call.keeps_version:
            return call.version
        return await self._probes.verify(call.engine, again=call.epoch != self._gate.pause.epoch)

    # ------------------------------------------------------------ the end of a turn

    async def _finish(self, turn: _Turn, answer: recording.Answer | None) -> None:
        """Commit a turn that was answered; returns when it is on disk."""
        if turn.turn_id is None or answer is None:
            await self._count(turn, answer)
            return
        drop: str | None = None
        if answer.is_empty:
            drop = Drop.EMPTY
        elif answer.recording is None:
            drop = Drop.NO_IDS
        elif turn.request.modified_logits:
            drop = Drop.MODIFIED_LOGITS
        finished = Finished(
            messages=turn.request.messages,
            response=answer.message,
            chain=conversation.extend(turn.request.outline.chain, answer.message),
            recording=answer.recording,
            drop=drop,
        )
        await self._store.finish(turn.turn_id, finished)

    async def _end(self, turn: _Turn, drop: Drop | None) -> None:
        """End a turn without an answer: dropped, or withdrawn as if it had never begun."""
        if turn.turn_id is None:
            return
        if drop is None:
            await self._store.withdraw(turn.turn_id)
        else:
            await self._store.finish(turn.turn_id, Finished(turn.request.messages, None, None, None, drop))

    async def _count(self, turn: _Turn, answer: recording.Answer | None) -> None:
        chains = _quotable(turn.request, answer) if answer is not None and turn.opted_out else []
        await self._store.count_untracked(turn.reason or Untracked.SIDE, turn.caller.owner, chains)


def _quotable(request: ChatRequest, answer: recording.Answer) -> list[bytes]:
    """Chains of what goes on from an opted-out answer. Where only older words are opted out of, of it all: the turn is
    nobody's secret without them."""
    if not request.opt_out:
        return [conversation.extend(request.outline.chain, answer.message)]
    return [conversation.exchange(request.messages, message) for message in (answer.message, *answer.others)]


def _fault(error: Exception, request_id: str) -> errors.ApiError:
    """Log where it happened, and not what was raised: that may quote the client."""
    where = "".join(traceback.format_tb(error.__traceback__))
    _log.error("request %s failed: %s at\n%s", request_id, type(error).__name__, where)
    return errors.internal()
