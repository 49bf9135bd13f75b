"""What the fake engine answers to a chat, in SGLang 0.5.23's shapes.

A reply may hold `<think>…</think>` (becomes reasoning_content) and `<call>name {json}</call>` (becomes a tool call).
A token is one character of the reply and its id is the character's code point, so a test can decode ids by eye; the
last token of a finished reply is EOS (id 0). Log probabilities are a fixed function of id and position.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

EOS = 0
Json = dict[str, Any]


def prompt_ids(messages: list[Json]) -> list[int]:
    """Ids of the rendered prompt: `<role>content` per message, then the assistant's turn."""
    text = "".join(f"<{message['role']}>{_text(message.get('content'))}" for message in messages)
    return [ord(character) for character in text + "<assistant>"]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def logprob(token: int, position: int) -> float:
    return -((token * 7 + position * 3) % 19 + 1) / 10


@dataclass(frozen=True)
class Piece:
    """One token's part of the answer: text, reasoning, or arguments of a call (its name comes with the first)."""

    kind: Literal["content", "reasoning", "call"]
    character: str
    call: int = 0
    name: str | None = None


_MARKUP = re.compile(r"<think>(?P<think>.*?)</think>|<call>(?P<name>\w+) (?P<arguments>.*?)</call>", re.DOTALL)


def pieces(text: str) -> list[Piece]:
    """A reply with markup, token by token."""
    found: list[Piece] = []
    calls = at = 0
    for match in _MARKUP.finditer(text):
        found += [Piece("content", character) for character in text[at : match.start()]]
        if match["name"] is None:
            found += [Piece("reasoning", character) for character in match["think"]]
        else:
            for number, character in enumerate(match["arguments"]):
                found.append(Piece("call", character, calls, match["name"] if number == 0 else None))
            calls += 1
        at = match.end()
    return found + [Piece("content", character) for character in text[at:]]


@dataclass
class Generation:
    """One running request: grows token by token, remembers which version sampled each token."""

    rid: str
    body: Json
    prompt: list[int]
    reply: list[int]
    limit: int
    output: list[int] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    aborted: bool = False
    retractions: int = 0
    said: list[Piece] = field(default_factory=list)
    index: int = 0
    """Of the choice, where a request asks for several."""
    now: Callable[[], float] = time.time
    """SGLang stamps each event with its own second."""

    def advance(self, version: str) -> None:
        self.output.append(self.reply[len(self.output)])
        self.versions.append(version)

    @property
    def finish_reason(self) -> Json | None:
        if self.output and self.output[-1] == EOS:
            return {"type": "stop", "matched": EOS}
        if (stop := self._stopped()) is not None:
            return {"type": "stop", "matched": stop}
        if len(self.output) >= self.limit:
            return {"type": "length", "length": self.limit}
        return {"type": "abort", "message": "Aborted"} if self.aborted else None

    def _stopped(self) -> str | None:
        """The stop string just met. (SGLang leaves it out of the text; streamed character by character it is in.)"""
        stops = self.body.get("stop") or []
        every = [stops] if isinstance(stops, str) else stops
        return next((stop for stop in every if stop and self.text.endswith(stop)), None)

    @property
    def text(self) -> str:
        return "".join(piece.character for piece in self.spoken("content"))

    def spoken(self, kind: str) -> list[Piece]:
        """The pieces of a kind that were generated so far."""
        pieces = self.said or [Piece("content", chr(token)) for token in self.output if token != EOS]
        return [piece for piece in pieces[: len(self.output)] if piece.kind == kind]

    def tool_calls(self) -> list[Json] | None:
        calls: dict[int, Json] = {}
        for piece in self.spoken("call"):
            call = calls.setdefault(piece.call, tool_call(piece.call, piece.name))
            call["function"]["arguments"] += piece.character
        return list(calls.values()) or None

    @property
    def reason_word(self) -> Any:
        reason = (self.finish_reason or {}).get("type")
        return "tool_calls" if reason == "stop" and self.spoken("call") else reason

    def spans(self) -> list[Json]:
        """`weight_versions` of meta_info: [start, end) of the output per version, in order."""
        spans: list[Json] = []
        for position, version in enumerate(self.versions):
            if spans and spans[-1]["version"] == version:
                spans[-1]["end"] = position + 1
            else:
                spans.append({"version": version, "start": position, "end": position + 1})
        return spans

    def meta_info(self, version: str) -> Json:
        triples = [[logprob(token, at), token, None] for at, token in enumerate(self.output)]
        info: Json = {
            "id": self.rid,
            "finish_reason": self.finish_reason,
            "prompt_tokens": len(self.prompt),
            "completion_tokens": len(self.output),
            "reasoning_tokens": 0,
            "cached_tokens": 0,
            "weight_version": version,
            "weight_versions": self.spans(),
            "num_retractions": self.retractions,
        }
        if self.body.get("logprobs"):
            info |= {"output_token_logprobs": triples, "output_token_logprobs_length": len(triples)}
        return info

    def usage(self, *others: "Generation") -> Json:
        """Of one choice, or of several of the same prompt."""
        prompt, completion = len(self.prompt), sum(len(run.output) for run in (self, *others))
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
            "prompt_tokens_details": None,
            "reasoning_tokens": 0,
        }

    def logprobs(self, start: int, end: int) -> Json | None:
        if not self.body.get("logprobs"):
            return None
        return {"content": [_logprob_entry(self.output[at], at) for at in range(start, end)]}


def _logprob_entry(token: int, position: int) -> Json:
    character = "" if token == EOS else chr(token)
    return {
        "token": character,
        "bytes": list(character.encode()),
        "logprob": logprob(token, position),
        "top_logprobs": [],
    }


def completion(run: Generation, version: str, *others: Generation) -> Json:
    """Body of a non-streaming chat reply; `others` are its further choices."""
    reply = _envelope(run, "chat.completion", [_whole_choice(each, version) for each in (run, *others)]) | {
        "usage": run.usage(*others),
        "metadata": {"weight_version": version, "weight_versions": run.spans()},
    }
    return reply | ({"sglext": extension} if (extension := sglext(run, *others)) else {})


def _whole_choice(run: Generation, version: str) -> Json:
    body, reason = run.body, run.finish_reason or {}
    thoughts = "".join(piece.character for piece in run.spoken("reasoning")) or None
    choice: Json = {
        "index": run.index,
        "message": {
            "role": "assistant",
            "content": run.text,
            "reasoning_content": thoughts,
            "tool_calls": run.tool_calls(),
        },
        "logprobs": run.logprobs(0, len(run.output)),
        "finish_reason": run.reason_word,
        "matched_stop": reason.get("matched"),
    }
    if body.get("return_token_ids") or body.get("return_prompt_token_ids"):
        choice["prompt_token_ids"] = run.prompt
    if body.get("return_token_ids"):
        choice["response_token_ids"] = list(run.output)
    if body.get("return_meta_info"):
        choice["meta_info"] = run.meta_info(version)
    return choice


def sglext(run: Generation, *others: Generation) -> Json:
    """Ids of the request, present only where the body asked for them."""
    extension: Json = {}
    if run.body.get("return_input_ids_in_sglext"):
        extension["input_ids"] = run.prompt
    if run.body.get("return_output_ids_in_sglext"):
        extension["output_ids"] = [list(each.output) for each in (run, *others)]
    return extension


def first_chunk(run: Generation) -> bytes:
    return _chunk(run, {"role": "assistant", "content": "", "reasoning_content": None}, opening=True)


def token_chunk(run: Generation, position: int) -> bytes:
    """Text and logprobs of one token; EOS has logprobs and no content key, as SGLang with a parser sends it."""
    delta: Json = {"reasoning_content": None}
    if run.output[position] != EOS:
        delta |= _delta(run.said[position] if run.said else Piece("content", chr(run.output[position])))
    return _chunk(run, delta, logprobs=run.logprobs(position, position + 1))


def tool_call(number: int, name: str | None) -> Json:
    """As SGLang sends it: id and name once, then null."""
    id_ = None if name is None else f"call_{number}"
    return {"id": id_, "index": number, "type": "function", "function": {"name": name, "arguments": ""}}


def _delta(piece: Piece) -> Json:
    if piece.kind == "content":
        return {"content": piece.character}
    if piece.kind == "reasoning":
        return {"reasoning_content": piece.character}
    call = tool_call(piece.call, piece.name)
    call["function"]["arguments"] = piece.character
    return {"tool_calls": [call]}


def closing_chunks(run: Generation, *others: Generation, with_ids: bool) -> Iterator[bytes]:
    """Finish of each choice, then sglext, then usage, then [DONE], as the body asked."""
    for each in (run, *others):
        matched = (each.finish_reason or {}).get("matched")
        yield _chunk(each, {"reasoning_content": None}, finish_reason=each.reason_word, matched_stop=matched)
    if with_ids and (extension := sglext(run, *others)):
        yield _event(_envelope(run, "chat.completion.chunk", []) | {"usage": None, "sglext": extension})
    if (run.body.get("stream_options") or {}).get("include_usage"):
        yield _event(_envelope(run, "chat.completion.chunk", []) | {"usage": run.usage(*others)})
    yield b"data: [DONE]\n\n"


def error_event(message: str, status: int = 400) -> bytes:
    """A failure after the stream began: HTTP 200 and an error frame."""
    return _event({"error": error_body(message, status)})


def error_body(message: str, status: int = 400) -> Json:
    """SGLang's flat error body, without OpenAI's wrapper."""
    return {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": status}


def _envelope(run: Generation, kind: str, choices: list[Json]) -> Json:
    model = run.body.get("model", "default")
    return {"id": run.rid, "object": kind, "created": int(run.now()), "model": model, "choices": choices}


def _chunk(run: Generation, delta: Json, *, opening: bool = False, **choice: Any) -> bytes:
    """SGLang's opening chunk carries no usage, even where every other one does."""
    fields = {
        "index": run.index,
        "delta": delta,
        "logprobs": None,
        "finish_reason": None,
        "matched_stop": None,
    } | choice
    options = run.body.get("stream_options") or {}
    usage = {"usage": run.usage()} if options.get("continuous_usage_stats") and not opening else {}
    return _event(_envelope(run, "chat.completion.chunk", [fields]) | usage)


def _event(body: Json) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
