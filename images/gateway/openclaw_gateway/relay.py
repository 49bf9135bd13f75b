"""A stream on its way from engine to client: events pass one by one, what the client did not ask for is cut out.

Cut: the event with `sglext`, and the value of `logprobs`. All else is byte-identical. A key between quotes cannot
occur inside a JSON string (its quotes would be escaped there), so finding it needs no parsing. From the event with
the finish reason on, a recorded stream is held back until it is committed: the client must not answer sooner.
"""

import json
import re
from enum import Enum

from openclaw_gateway import errors, sse
from openclaw_gateway.recording import StreamRecorder

_USUAL_START = b'data: {"id":'
_USUAL_LOGPROBS = b'"logprobs":{'
_USUAL_AFTER = b'},"finish_reason":null'
_NULL_AT = len(_USUAL_LOGPROBS) - 1
_LOGPROBS = re.compile(rb'"logprobs"\s*:\s*(?=\{)')
_AFTER_LOGPROBS = re.compile(rb'\s*,\s*"finish_reason"\s*:')
_FINISH = re.compile(rb'"finish_reason"\s*:\s*"(\w+)"')
_ERROR = re.compile(rb'data:\s*\{\s*"error"\s*:')
_SGLEXT = re.compile(rb'"sglext"\s*:\s*\{')


class End(Enum):
    """How a stream ended."""

    DONE = "done"
    FAILED = "failed"


class Relay:
    """Feed it the engine's bytes; `send` of each call goes to the client at once."""

    def __init__(self, recorder: StreamRecorder | None, *, cut_logprobs: bool) -> None:
        self._recorder, self._cut_logprobs = recorder, cut_logprobs
        self._splitter = sse.EventSplitter()
        self._held: list[bytes] = []
        self._finished = False
        self.end: End | None = None
        self.error_frame = b""
        """With FAILED: what the client is told."""

    def feed(self, chunk: bytes) -> bytes:
        if usual := self.usual(chunk):
            return usual
        out = b""
        for event in self._splitter.feed(chunk):
            if self.end is not None:
                break
            out += self._pass(event)
        return out

    def held(self) -> bytes:
        """The events that end the stream, to be sent once it is committed."""
        return b"".join(self._held)

    def cut_off(self) -> None:
        """The engine's stream is over; unless it ended as it should, that is a failure."""
        if self.end is None:
            self._fail(errors.bad_gateway("the engine's stream was cut off", "upstream_cut").frame())

    def usual(self, chunk: bytes) -> bytes:
        """A recorded token exactly as SGLang writes it, which nearly every chunk is; b"" for any other."""
        if self._recorder is None or not self._cut_logprobs or self.end is not None or self._finished:
            return b""
        if not chunk.startswith(_USUAL_START) or chunk.count(b"\n") != 2 or not chunk.endswith(b"\n\n"):
            return b""
        start = chunk.find(_USUAL_LOGPROBS)
        end = chunk.find(_USUAL_AFTER, start)
        if start < 0 or end < 0 or chunk.find(b'"sglext"') >= 0 or chunk.find(b"\r") >= 0 or self._splitter.rest():
            return b""
        self._recorder.event(chunk[6:-2])
        return b"%bnull%b" % (chunk[: start + _NULL_AT], chunk[end + 1 :])

    def _pass(self, event: bytes) -> bytes:
        if _ERROR.match(event):
            self._fail(event)
            return b""
        if event.startswith(b"data: [DONE]") or sse.data(event) == sse.DONE:
            return self._done(event)
        if b'"sglext"' in event and _SGLEXT.search(event):
            if self._recorder is not None:
                self._recorder.ids(sse.data(event))
            return b""
        whole, event = event, self._without_logprobs(event)
        finish = _FINISH.search(event) if b'"finish_reason"' in event else None
        if finish is not None and finish.group(1) == b"abort":
            self._fail(errors.bad_gateway("the engine aborted the turn", "upstream_aborted").frame())
            return b""
        self._finished = self._finished or finish is not None
        if self._recorder is None:
            return event
        if data := sse.data(whole):
            self._recorder.event(data)
        if self._finished:
            self._held.append(event)
            return b""
        return event

    def _done(self, event: bytes) -> bytes:
        if self._finished:
            self._held.append(event)
            self.end = End.DONE
        else:
            self._fail(errors.bad_gateway("the engine's stream ended without a finish reason", "upstream_cut").frame())
        return b""

    def _fail(self, frame: bytes) -> None:
        self.end, self.error_frame = End.FAILED, frame
        self._held.clear()

    def _without_logprobs(self, event: bytes) -> bytes:
        if not self._cut_logprobs:
            return event
        found = _LOGPROBS.search(event) if b'"logprobs"' in event else None
        if found is None:
            return event
        start = found.end()
        after = _AFTER_LOGPROBS.search(event, start)
        # SGLang writes finish_reason right behind logprobs; for any other order the value is read to its end.
        end = after.start() if after is not None else start + _length_of_object(event[start:])
        return event[:start] + b"null" + event[end:]


def _length_of_object(data: bytes) -> int:
    """Bytes of the JSON object `data` begins with."""
    text = data.decode("utf-8", "surrogateescape")
    _, end = json.JSONDecoder().raw_decode(text)
    return len(text[:end].encode("utf-8", "surrogateescape"))
