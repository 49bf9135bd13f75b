"""A stream on its way from engine to client: events pass one by one, what the client did not ask for is cut out.

Cut: the event with `sglext`, the one that counts the stream's tokens, and the value of `logprobs`. All else is
byte-identical. A key between quotes cannot occur inside a JSON string (its quotes would be escaped there), so finding
it needs no parsing. From the last finish reason on, a stream that is read is held back until what it said is
committed: the client must not answer sooner.
"""

import json
import re
from enum import Enum

import msgspec

from openclaw_gateway import errors, sse
from openclaw_gateway.errors import ApiError
from openclaw_gateway.recording import StreamRecorder
from openclaw_gateway.replies import Usage

_USUAL_START = b'data: {"id":'
_USUAL_LOGPROBS = b'"logprobs":{'
_USUAL_AFTER = b'},"finish_reason":null'
_NULL_AT = len(_USUAL_LOGPROBS) - 1
_LOGPROBS = re.compile(rb'"logprobs"\s*:\s*(?=\{)')
_AFTER_LOGPROBS = re.compile(rb'\s*,\s*"finish_reason"\s*:')
_FINISH = re.compile(rb'"finish_reason"\s*:\s*"(\w+)"')
_ERROR = re.compile(rb'data:\s*\{\s*"error"\s*:')
_SGLEXT = re.compile(rb'"sglext"\s*:\s*\{')
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')


class _Counted(msgspec.Struct, gc=False):
    """The event with the tokens of a whole stream."""

    usage: Usage | None = None


_counted = msgspec.json.Decoder(_Counted)


class End(Enum):
    """How a stream ended."""

    DONE = "done"
    FAILED = "failed"


class Relay:
    """Feed it the engine's bytes; what a call returns goes to the client at once. `choices`: how many are asked for."""

    def __init__(
        self, recorder: StreamRecorder | None, *, cut_logprobs: bool, cut_usage: bool, choices: int = 1
    ) -> None:
        self._recorder, self._cut_logprobs, self._cut_usage = recorder, cut_logprobs, cut_usage
        self._splitter = sse.EventSplitter()
        self._held: list[bytes] = []
        self._choices, self._finished = choices, 0
        """Of so many choices, so many have their finish reason."""
        self.usage = Usage()
        """Of the whole stream, once the engine said so."""
        self.end: End | None = None
        self.error: ApiError | None = None
        self.error_frame = b""
        """With FAILED: what the client is told, as a refusal and as an event."""

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
            self._fail(errors.bad_gateway("the engine's stream was cut off", "upstream_cut"))

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
            self._fail(errors.from_frame(sse.data(event)), event)
            return b""
        if event.startswith(b"data: [DONE]") or sse.data(event) == sse.DONE:
            return self._done(event)
        if b'"sglext"' in event and _SGLEXT.search(event):
            if self._recorder is not None:
                self._recorder.ids(sse.data(event))
            return b""
        if b'"usage"' in event and self._counts(event) and self._cut_usage:
            return b""
        whole, event = event, self._without_logprobs(event)
        finish = _FINISH.search(event) if b'"finish_reason"' in event else None
        if finish is not None and finish.group(1) == b"abort":
            self._fail(errors.bad_gateway("the engine aborted the turn", "upstream_aborted"))
            return b""
        self._finished += finish is not None
        if self._recorder is None:
            return event
        if data := sse.data(whole):
            self._recorder.event(data)
        if self._finished >= self._choices:
            self._held.append(event)
            return b""
        return event

    def _counts(self, event: bytes) -> bool:
        """Read the event with the tokens of all choices together; it has none of them itself."""
        if _NO_CHOICES.search(event) is None:
            return False
        try:
            usage = _counted.decode(sse.data(event)).usage
        except msgspec.MsgspecError:
            return False
        self.usage = usage or self.usage
        return usage is not None

    def _done(self, event: bytes) -> bytes:
        if self._finished:
            self._held.append(event)
            self.end = End.DONE
        else:
            self._fail(errors.bad_gateway("the engine's stream ended without a finish reason", "upstream_cut"))
        return b""

    def _fail(self, error: ApiError, frame: bytes | None = None) -> None:
        """`frame`: the engine's own words for it."""
        self.end, self.error, self.error_frame = End.FAILED, error, frame or error.frame()
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
