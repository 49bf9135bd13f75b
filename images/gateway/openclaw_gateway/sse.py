"""Server-sent events as bytes: split at blank lines, nowhere else.

A line ends in CR LF, LF or CR; U+2028, U+2029 and U+0085 are text. Bytes arrive cut anywhere, in the middle of a
character or of a CR LF too.
"""

import re

_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
DONE = b"[DONE]"


class EventSplitter:
    """`feed` returns the events that are whole, each with its blank line; concatenated they are the input."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        data = self._rest + chunk if self._rest else chunk
        if b"\r" not in data:
            *events, self._rest = data.split(b"\n\n")
            return [event + b"\n\n" for event in events]
        return self._feed_any(data)

    def rest(self) -> bytes:
        """What came after the last whole event."""
        return self._rest

    def _feed_any(self, data: bytes) -> list[bytes]:
        events: list[bytes] = []
        start = 0
        while match := _BLANK_LINE.search(data, start):
            if match.end() == len(data) and data.endswith(b"\r"):
                break  # the LF of a CR LF may follow
            events.append(data[start : match.end()])
            start = match.end()
        self._rest = data[start:]
        return events


def data(event: bytes) -> bytes:
    """The event's data lines, joined; empty for a comment."""
    if event.startswith(b"data: ") and event.find(b"\n") >= len(event) - 2:
        return event[6:-2]
    lines = (line for line in re.split(rb"\r\n|\n|\r", event) if line.startswith(b"data:"))
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines)
