"""A fake SGLang 0.5.23: the HTTP surface that gateway and sync agent use, with knobs for hostile behaviour.

It exists for scale and for failures no real engine shows on demand, and passes the same contract suite as the real
one (`tests/contract/test_engine.py`). Behaviour copied on purpose: a paused engine accepts requests and lets them
wait; `/ready` is 503 while paused; an update overwrites model path and served name; a refused update is a 400 with
`success: false`; an adapter's unload first takes its name away, then waits for its users, and an adapter asked for
after that is loaded again; control routes want the admin key, data routes none.

    async with FakeEngine(reply="Hello") as engine:
        requests.post(engine.url + "/v1/chat/completions", …)
        engine.knobs.cut_after = 3          # the next stream dies after three tokens
        engine.requests                     # every chat body received, in order
"""

import asyncio
import hashlib
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from openclaw_engine.transfer_group import parsed
from tests.fakes import engine_replies as replies

Json = dict[str, Any]
DIRTY = "Weights were updated, but the cache was not flushed."


@dataclass
class Knobs:
    """Hostile behaviour; every knob is off by default and can be turned while the engine runs."""

    token_delay_sec: float = 0.0
    """Pause before each token."""
    status: int | None = None
    """Refuse chats with this HTTP status."""
    hang: bool = False
    """Accept a chat and never answer."""
    cut_after: int | None = None
    """Break the connection of a stream after this many tokens."""
    error_after: int | None = None
    """Send an error frame and [DONE] after this many tokens; 0: first of all, as a full queue answers a stream."""
    error_code: int = 500
    """In that frame."""
    no_ids: bool = False
    """Leave the sglext chunk (and ids of non-streams) out."""
    wrong_ids: bool = False
    """Send one output id too few."""
    byte_by_byte: bool = False
    """Write streams one byte at a time."""
    not_ready: bool = False
    """/ready says 503."""
    ready_hangs: bool = False
    """/ready is not answered."""
    pause_delay_sec: float = 0.0
    update_delay_sec: float = 0.0
    continue_delay_sec: float = 0.0
    checksum_delay_sec: float = 0.0
    update_error: str | None = None
    """/update_weights_from_disk answers 400 success:false with this message; weights stay."""
    update_dirty: bool = False
    """The update lands, but answers 400 "cache was not flushed"."""
    update_mixed: bool = False
    """One of two data-parallel ranks takes the update, the other refuses it."""
    update_lands_nothing: bool = False
    """The update answers 200 and changes the version, but the weights' checksum stays."""
    wrong_version: bool = False
    """The update answers 200 and loads other weights, but reports the old version."""
    continue_fails: int = 0
    """How many times /continue_generation answers 500 before it works."""
    receive_fails_at: int | None = None
    """/update_weights_from_distributed of this bucket (0, 1, …) answers 400; the ones before it are in memory."""
    receive_hangs_sec: float | None = None
    """/update_weights_from_distributed waits so long for a sender that says nothing, then answers 400; SGLang hears
    nothing else meanwhile. 0: as long as the group's name allows, or half an hour."""
    group_error: str | None = None
    """/init_weights_update_group answers 400 with this message."""
    adapter_error: str | None = None
    """/load_lora_adapter answers 400 success:false with this message; nothing is loaded."""
    adapter_delay_sec: float = 0.0


class FakeEngine:
    """One engine on a random loopback port (or `port`). Use as an async context manager."""

    def __init__(
        self,
        *,
        reply: str | Callable[[Json], str] = "Hello, world.",
        version: str = "0-00000000",
        model_path: str = "/model",
        admin_key: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        knobs: Knobs | None = None,
    ) -> None:
        self.reply, self.version, self.admin_key = reply, version, admin_key
        self.knobs = knobs or Knobs()
        self.served_name, self.model_path = "policy", model_path
        self.checksum = _checksum(self.model_path)
        self.paused = False
        self.requests: list[Json] = []
        self.calls: list[tuple[str, Json]] = []
        """Control routes called: (path, body), in order."""
        self.running: dict[str, replies.Generation] = {}
        self.adapters: dict[str, str] = {}
        """LoRA adapters that are loaded: name to path."""
        self._once_loaded: dict[str, str] = {}
        self.groups: set[str] = set()
        """Groups for weight transfers it is in; who else is in them it does not ask."""
        self._received: list[list[str]] | None = None
        """Buckets of the open weight-update session."""
        self._host, self._port = host, port
        self._moved = asyncio.Condition()
        """Notified when a pause begins or ends and when a request is aborted."""
        self._hears = asyncio.Event()
        """Not set while a receive hangs."""
        self._hears.set()
        self._scheduler = asyncio.Lock()
        """Updates and checksums happen one after another, as in SGLang's scheduler."""
        self._adapter_lock = asyncio.Lock()
        """Loads and unloads happen one after another; an unload that waits for its users holds up every load."""
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        self._runner = web.AppRunner(self._app(), handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self._port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner:
            await self._runner.cleanup()

    @property
    def port(self) -> int:
        return self._port

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=64 << 20)
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._completions),
                web.post("/v1/tokenize", self._tokenize),
                web.get("/v1/models", self._models),
                web.get("/model_info", self._model_info),
                web.get("/server_info", self._server_info),
                web.get("/ready", self._ready),
                web.get("/v1/loads", self._loads),
                web.post("/pause_generation", self._control(self._pause)),
                web.post("/continue_generation", self._control(self._continue)),
                web.post("/update_weights_from_disk", self._control(self._update)),
                web.post("/weights_checker", self._control(self._weights_checker)),
                web.post("/abort_request", self._control(self._abort)),
                web.post("/freeze_gc", self._control(self._freeze_gc)),
                web.post("/init_weights_update_group", self._control(self._join_group)),
                web.post("/destroy_weights_update_group", self._control(self._leave_group)),
                web.post("/begin_weight_update", self._control(self._begin_update)),
                web.post("/update_weights_from_distributed", self._control(self._receive)),
                web.post("/end_weight_update", self._control(self._end_update)),
                web.post("/load_lora_adapter", self._control(self._load_adapter)),
                web.post("/unload_lora_adapter", self._control(self._unload_adapter)),
                web.get("/openclaw/adapters", self._adapters),
            ]
        )
        return app

    # ------------------------------------------------------------ data routes

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        if self.knobs.status is not None:
            status = self.knobs.status
            return web.json_response(replies.error_body("refused by the fake engine", status), status=status)
        if self.knobs.hang:
            await asyncio.sleep(3600)
        stream = bool(body.get("stream"))
        refused = [key for key in ("return_prompt_token_ids", "return_token_ids", "return_meta_info") if body.get(key)]
        if stream and refused:
            return web.json_response(replies.error_body(f"{refused[0]} is not supported with streaming"), status=400)
        if not body.get("messages"):
            return web.json_response(replies.error_body("messages must not be empty"), status=400)
        if (name := body.get("lora_path")) and not self._has_adapter(name):
            message = f"Got LoRA adapter that has never been loaded: {name}"
            return web.json_response(replies.error_body(message), status=400)
        runs = [self._begin(body, index) for index in range(body.get("n") or 1)]
        try:
            return await (self._stream(request, *runs) if stream else self._whole(*runs))
        finally:
            for run in runs:
                self.running.pop(run.rid, None)
            await self._notify()

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        """A text completion: one chunk with everything, so far as the gateway cares."""
        body = await request.json()
        self.requests.append(body)
        text = self.reply(body) if callable(self.reply) else self.reply
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": "stop", "matched_stop": replies.EOS}
        reply = {
            "id": body["rid"],
            "object": "text_completion",
            "created": 0,
            "model": body["model"],
            "choices": [choice],
        }
        usage = {"usage": {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(text)}}
        if not body.get("stream"):
            return web.json_response(reply | usage)
        events = [reply]
        if (body.get("stream_options") or {}).get("include_usage"):
            events.append(reply | {"choices": []} | usage)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for event in events:
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _tokenize(self, request: web.Request) -> web.Response:
        ids = replies.prompt_ids((await request.json())["messages"])
        return web.json_response({"tokens": ids, "count": len(ids), "max_model_len": 4096})

    def _begin(self, body: Json, index: int) -> replies.Generation:
        """One choice; each further one is a word longer."""
        text = (self.reply(body) if callable(self.reply) else self.reply) + " more" * index
        said = replies.pieces(text)
        tokens = [*(ord(piece.character) for piece in said), replies.EOS]
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or len(tokens)
        rid = (body.get("rid") or uuid.uuid4().hex) + (f"_{index}" if index else "")
        prompt = replies.prompt_ids(body["messages"])
        run = replies.Generation(rid, body, prompt, tokens, limit, said=said, index=index)
        self.running[rid] = run
        return run

    async def _advance(self, run: replies.Generation) -> bool:
        """Generate one token, waiting while paused. False when the request has ended."""
        if run.finish_reason is None and self.knobs.token_delay_sec:
            await asyncio.sleep(self.knobs.token_delay_sec)
        await self._may_run(run)
        if run.finish_reason is not None:
            return False
        run.advance(self.version)
        return True

    async def _may_run(self, run: replies.Generation) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: run.aborted or not self.paused)

    async def _whole(self, *runs: replies.Generation) -> web.Response:
        for run in runs:
            while await self._advance(run):
                pass
        body = replies.completion(runs[0], self.version, *runs[1:])
        if self.knobs.no_ids:
            for key in ("prompt_token_ids", "response_token_ids", "meta_info"):
                body["choices"][0].pop(key, None)
            body.pop("sglext", None)
        elif self.knobs.wrong_ids and "response_token_ids" in body["choices"][0]:
            body["choices"][0]["response_token_ids"].pop()
        return web.json_response(body)

    async def _stream(self, request: web.Request, *runs: replies.Generation) -> web.StreamResponse:
        run, *others = runs
        await self._may_run(run)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        if await self._breaks(request, response, run):
            return response
        for each in runs:
            await self._write(response, replies.first_chunk(each))
        while advanced := [each for each in runs if await self._advance(each)]:
            for each in advanced:
                await self._write(response, replies.token_chunk(each, len(each.output) - 1))
            if await self._breaks(request, response, run):
                return response
        if self.knobs.wrong_ids:
            run.output.pop()
        for chunk in replies.closing_chunks(run, *others, with_ids=not self.knobs.no_ids):
            await self._write(response, chunk)
        return response

    async def _breaks(self, request: web.Request, response: web.StreamResponse, run: replies.Generation) -> bool:
        """Cut the stream off or end it with an error, if this is where a knob says so."""
        if self.knobs.cut_after == len(run.output) and request.transport:
            request.transport.abort()
            return True
        if self.knobs.error_after == len(run.output):
            frame = replies.error_event("the fake engine failed", self.knobs.error_code)
            await self._write(response, frame + b"data: [DONE]\n\n")
            return True
        return False

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        pieces = [data[at : at + 1] for at in range(len(data))] if self.knobs.byte_by_byte else [data]
        for piece in pieces:
            await response.write(piece)

    async def _models(self, _: web.Request) -> web.Response:
        card = {"object": "model", "created": 0, "owned_by": "sglang"}
        base = card | {"id": self.served_name, "root": self.served_name, "parent": None}
        adapters = [card | {"id": name, "root": path, "parent": base["id"]} for name, path in self.adapters.items()]
        return web.json_response({"object": "list", "data": [base, *adapters]})

    async def _model_info(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "model_path": self.model_path,
                "served_model_name": self.served_name,
                "is_generation": True,
                "weight_version": self.version,
                "model_type": "llama",
            }
        )

    async def _server_info(self, _: web.Request) -> web.Response:
        return web.json_response({"version": "0.5.23", "weight_version": "0-00000000", "internal_states": [{}]})

    async def _ready(self, _: web.Request) -> web.Response:
        if self.knobs.ready_hangs:
            await asyncio.sleep(3600)
        return web.Response(status=503 if self.paused or self.knobs.not_ready else 200)

    async def _loads(self, _: web.Request) -> web.Response:
        load = {"dp_rank": 0, "num_running_reqs": len(self.running), "num_waiting_reqs": 0}
        return web.json_response({"version": "0.5.23", "loads": [load]})

    # ------------------------------------------------------------ control routes

    def _control(self, handler: Callable[[Json], Any]) -> Callable[[web.Request], Any]:
        async def guarded(request: web.Request) -> web.Response:
            wanted = f"Bearer {self.admin_key}"
            if self.admin_key is not None and request.headers.get("Authorization") != wanted:
                return web.json_response({"error": "Unauthorized"}, status=401)
            body = await request.json() if request.can_read_body else {}
            self.calls.append((request.path, body))
            return await asyncio.shield(heard(body))  # a caller that hangs up changes nothing

        async def heard(body: Json) -> web.Response:
            await self._hears.wait()
            response: web.Response = await handler(body)
            return response

        return guarded

    async def _pause(self, body: Json) -> web.Response:
        mode = body.get("mode", "abort")
        if mode not in ("abort", "retract", "in_place"):
            return web.json_response(replies.error_body(f"bad mode {mode}"), status=400)
        await asyncio.sleep(self.knobs.pause_delay_sec)
        self.paused = True
        for run in self.running.values():
            run.aborted = run.aborted or mode == "abort"
            run.retractions += mode == "retract"
        await self._notify()
        return web.json_response({"message": "Generation paused successfully.", "status": "ok"})

    async def _continue(self, _: Json) -> web.Response:
        await asyncio.sleep(self.knobs.continue_delay_sec)
        if self.knobs.continue_fails > 0:
            self.knobs.continue_fails -= 1
            return web.json_response({"error": {"message": "the fake engine failed"}}, status=500)
        self.paused = False
        await self._notify()
        return web.json_response({"message": "Generation continued successfully.", "status": "ok"})

    async def _update(self, body: Json) -> web.Response:
        async with self._scheduler:
            return await self._load(body)

    async def _load(self, body: Json) -> web.Response:
        await asyncio.sleep(self.knobs.update_delay_sec)
        path, before = body["model_path"], self.version
        if self.knobs.update_error is not None or not _exists(path):
            return _update_reply(False, self.knobs.update_error or f"Failed to get weights iterator: {path}")
        if not self.knobs.update_lands_nothing:
            self.checksum = _checksum(path)
        if not self.knobs.wrong_version and body.get("weight_version") is not None:
            self.version = body["weight_version"]
        self.model_path = self.served_name = path
        if self.knobs.update_mixed:
            self.version = before
            words = "Succeeded to update model weights. | Failed to update weights: no space. Rolling back to original."
            return web.json_response({"success": False, "message": words, "num_paused_requests": [0, 0]}, status=400)
        if self.knobs.update_dirty:
            return _update_reply(False, DIRTY)
        return _update_reply(True, f"Succeeded to update model weights. Weight version updated to {self.version}.")

    async def _weights_checker(self, _: Json) -> web.Response:
        async with self._scheduler:
            await asyncio.sleep(self.knobs.checksum_delay_sec)
            checksum = self.checksum
        return web.json_response({"success": True, "message": "", "ranks": [], "per_engine_checksum": checksum})

    async def _abort(self, body: Json) -> web.Response:
        for rid, run in self.running.items():
            if body.get("abort_all") or rid.startswith(body.get("rid") or "\0"):
                run.aborted = True
        await self._notify()
        return web.Response()

    async def _notify(self) -> None:
        async with self._moved:
            self._moved.notify_all()

    # ------------------------------------------------------------ transfers

    async def _join_group(self, body: Json) -> web.Response:
        if self.knobs.group_error is not None:
            return _update_reply(False, self.knobs.group_error)
        self.groups.add(body["group_name"])
        return _update_reply(True, "Succeeded to initialize custom process group.")

    async def _leave_group(self, body: Json) -> web.Response:
        there = body["group_name"] in self.groups
        self.groups.discard(body["group_name"])
        return _update_reply(there, "" if there else "The group to be destroyed does not exist.")

    async def _begin_update(self, _: Json) -> web.Response:
        if self._received is not None:
            return _update_reply(False, "a weight-update session is already open; call end_weight_update() first")
        self._received = []
        return _update_reply(True, "Success")

    async def _receive(self, body: Json) -> web.Response:
        if self._received is None:
            return _update_reply(False, "must run between begin_weight_update() and end_weight_update()")
        if self.knobs.receive_fails_at == len(self._received) or body["group_name"] not in self.groups:
            return _update_reply(False, "Failed to receive weights: connection closed by peer")
        if self.knobs.receive_hangs_sec is not None:
            return await self._receive_nothing(body["group_name"], self.knobs.receive_hangs_sec)
        self._received.append(body["names"])
        self.checksum = hashlib.sha256(f"{self.checksum}{body['names']}".encode()).hexdigest()
        if body.get("weight_version") is not None:
            self.version = body["weight_version"]
        return _update_reply(True, "Succeeded to update parameter online.")

    async def _receive_nothing(self, group: str, seconds: float) -> web.Response:
        self._hears.clear()
        await asyncio.sleep(seconds or parsed(group)[1] or 1800.0)
        self._hears.set()
        return _update_reply(False, "Failed to receive weights: Timed out waiting for recv operation to complete")

    async def _end_update(self, _: Json) -> web.Response:
        there, self._received = self._received is not None, None
        return _update_reply(there, "" if there else "no weight-update session is open")

    # ------------------------------------------------------------ adapters

    def _has_adapter(self, name: str) -> bool:
        """One that was unloaded is loaded again when it is asked for."""
        if name not in self.adapters and name in self._once_loaded:
            self.adapters[name] = self._once_loaded[name]
        return name in self.adapters

    async def _load_adapter(self, body: Json) -> web.Response:
        async with self._adapter_lock:
            await asyncio.sleep(self.knobs.adapter_delay_sec)
            name, path = body["lora_name"], body["lora_path"]
            if self.knobs.adapter_error is not None or not _exists(path):
                return self._adapter_reply(self.knobs.adapter_error or f"Repo id must be in the form: {path}")
            if name in self.adapters:
                return self._adapter_reply(f"Failed to load LoRA adapter {name} because it is already loaded")
            self.adapters[name] = self._once_loaded[name] = path
            return self._adapter_reply(None)

    async def _unload_adapter(self, body: Json) -> web.Response:
        async with self._adapter_lock:
            name = body["lora_name"]
            if self.adapters.pop(name, None) is None:
                return self._adapter_reply(f"LoRA with name {name} does not exist.")
            async with self._moved:
                await self._moved.wait_for(lambda: self._users(name) == 0)
            return self._adapter_reply(None)

    async def _adapters(self, _: web.Request) -> web.Response:
        return web.json_response({name: self._users(name) for name in self.adapters})

    def _users(self, name: str) -> int:
        return sum(run.body.get("lora_path") == name for run in self.running.values())

    def _adapter_reply(self, error: str | None) -> web.Response:
        body = {"success": error is None, "error_message": error or "", "loaded_adapters": dict(self.adapters)}
        return web.json_response(body, status=200 if error is None else 400)

    async def _freeze_gc(self, _: Json) -> web.Response:
        return web.Response(text="Garbage collection frozen.")


def _exists(path: str) -> bool:
    return Path(path).is_dir()


def _update_reply(success: bool, message: str) -> web.Response:
    body = {"success": success, "message": message, "num_paused_requests": 0}
    return web.json_response(body, status=200 if success else 400)


def _checksum(path: str) -> str:
    """A digest over path and content: a version's directory is never rewritten, so it stands for its weights."""
    digest = hashlib.sha256(path.encode())
    folder = Path(path)
    for file in sorted(folder.glob("*")) if folder.is_dir() else []:
        digest.update(file.name.encode() + file.read_bytes() if file.is_file() else b"")
    return digest.hexdigest()
