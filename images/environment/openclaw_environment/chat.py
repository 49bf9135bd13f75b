"""A stock-like chat client: one request to an OpenAI-style endpoint, refusals waited out as a patient user would.

A refusal (429, 503, other 4xx) was never admitted, so it is safe to ask again; after anything else (5xx, a broken
connection) nobody knows whether the turn counted, so the user gives the session up instead of asking twice.
Bounds: a request ≤ REQUEST_SEC, one wait ≤ LONGEST_WAIT_SEC, all tries for one turn ≤ PATIENCE_SEC.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import aiohttp

from openclaw_environment.journal import Journal

REQUEST_SEC = 180.0
LONGEST_WAIT_SEC = 15.0
PATIENCE_SEC = 240.0
_DEFAULT_WAIT_SEC = 1.0
_RETRIED = frozenset({429, 503})


class GaveUpError(Exception):
    """The turn has no answer: refused for too long, refused for good, or failed half-way."""


class Chat:
    """Talks to `base_url` (ending in /v1) and writes everything into the journal."""

    def __init__(
        self, session: aiohttp.ClientSession, base_url: str, journal: Journal, api_key: str | None = None
    ) -> None:
        self._session, self._journal = session, journal
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    async def say(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
        """Text of the answer. Raises GaveUpError."""
        give_up_at = time.monotonic() + PATIENCE_SEC
        while True:
            sent_at = time.time()
            try:
                status, text, wait = await self._once(body, headers)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                self._journal.failed()
                raise GaveUpError(f"{type(error).__name__}: {error}") from error
            if status == 200:
                self._journal.answered()
                return text
            if status >= 500 and status != 503:
                self._journal.failed()
                raise GaveUpError(f"HTTP {status}: {text[:200]}")
            self._journal.refused(sent_at, time.time(), status, error_code(text))
            if status not in _RETRIED or time.monotonic() + wait >= give_up_at:
                raise GaveUpError(f"HTTP {status}: {text[:200]}")
            await asyncio.sleep(wait)

    async def _once(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[int, str, float]:
        """(status, answer's text or error body, seconds to wait before another try)."""
        async with (
            asyncio.timeout(REQUEST_SEC),
            self._session.post(self._url, json=body, headers=self._headers | dict(headers)) as response,
        ):
            if response.status != 200:
                return response.status, await response.text(errors="replace"), _wait(response.headers)
            if body.get("stream"):
                return 200, await read_stream(response.content), 0.0
            reply = await response.json()
            try:
                return 200, reply["choices"][0]["message"]["content"] or "", 0.0
            except (KeyError, IndexError, TypeError) as error:
                raise ValueError("answer without choices[0].message.content") from error


async def read_stream(content: aiohttp.StreamReader) -> str:
    """Text of an SSE chat stream read to its `[DONE]`. ValueError when it ends early or carries an error."""
    pieces: list[str] = []
    async for raw in content:
        line = raw.strip()
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            return "".join(pieces)
        event = json.loads(data)
        if "error" in event:
            raise ValueError(f"stream ended in an error: {event['error']}")
        for choice in event.get("choices") or []:
            pieces.append((choice.get("delta") or {}).get("content") or "")
    raise ValueError("stream ended without [DONE]")


def error_code(text: str) -> str:
    """`code` of an OpenAI error body, else its type, else `unknown`."""
    try:
        error = json.loads(text)["error"]
        return str(error.get("code") or error.get("type") or "unknown")
    except (ValueError, KeyError, TypeError, AttributeError):
        return "unknown"


def _wait(headers: Mapping[str, str]) -> float:
    """Retry-After in seconds, within [0.05, LONGEST_WAIT_SEC]."""
    try:
        seconds = float(headers.get("Retry-After", _DEFAULT_WAIT_SEC))
    except ValueError:
        seconds = _DEFAULT_WAIT_SEC
    return min(LONGEST_WAIT_SEC, max(0.05, seconds))
