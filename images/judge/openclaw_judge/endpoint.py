"""The judge endpoint: one OpenAI-style chat completion at a time, with its bounds.

Bounds: one request takes ≤ `timeout_sec`; everything done for one turn, waits and retries included, ends at the
turn's deadline (≤ 2 × `timeout_sec`). A request that hangs is not repeated, for its slot was held long enough; 429,
5xx and broken connections are, as `Retry-After` or a short backoff says, while the deadline allows.
It knows nothing of prompts' meaning or of scores. The key is in no message it produces.
"""

import asyncio
import json
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp

from openclaw_judge.state import JudgingState

RETRIED_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_FIRST_BACKOFF_SEC = 0.5
_MAX_WORDS = 300
_KEY_FIELD = "spec.api.apiKeySecretRef"
_KEY_LIKE = re.compile(r"\b(sk|pk|key|token)-[^\s\"',}]+|(?<=Bearer )[^\s\"',}]+", re.IGNORECASE)


class EndpointError(Exception):
    """A request that brought no answer. `words` are safe to show; `retry_after` in seconds if the endpoint gave one."""

    def __init__(
        self, words: str, *, retry: bool = False, retry_after: float | None = None, refused_key: bool = False
    ) -> None:
        super().__init__(words)
        self.words, self.retry, self.retry_after, self.refused_key = words, retry, retry_after, refused_key


class Endpoint:
    """`ask` returns the text of one judgement, or None when the endpoint did not give one in time."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        base_url: str,
        key: str | None,
        model: str,
        temperature: float,
        max_tokens: int,
        timeout_sec: float,
        concurrency: int,
        state: JudgingState,
    ) -> None:
        self._session, self._state, self._key = session, state, key
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._body = {"model": model, "temperature": temperature, "max_tokens": max_tokens, "stream": False}
        self.timeout_sec = timeout_sec
        self._slots = asyncio.Semaphore(concurrency)

    async def ask(self, messages: Sequence[Mapping[str, str]], *, deadline: float) -> str | None:
        """Text of the answer, None on failure. `deadline` on the running loop's clock bounds everything."""
        attempt = 0
        while True:
            try:
                text = await self._within_slot(messages, deadline)
            except EndpointError as error:
                pause = _pause(error, attempt)
                if not error.retry or asyncio.get_running_loop().time() + pause >= deadline:
                    self._record(error)
                    return None
            else:
                self._state.answered()
                return text
            self._state.count("retries")
            await asyncio.sleep(pause)
            attempt += 1

    async def probe(self) -> bool:
        """One tiny request; says whether the endpoint answers and takes the key."""
        body = self._body | {"messages": [{"role": "user", "content": "Reply with OK."}], "max_tokens": 1}
        try:
            async with self._slots:
                await self._post(body, self.timeout_sec)
        except EndpointError as error:
            self._state.failed(error.words, refused_key=error.refused_key)
            return False
        self._state.answered()
        return True

    def _record(self, error: EndpointError) -> None:
        self._state.count("refused" if error.refused_key else "failed")
        self._state.failed(error.words, refused_key=error.refused_key)

    async def _within_slot(self, messages: Sequence[Mapping[str, str]], deadline: float) -> str | None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            raise EndpointError("no free slot (rewardJudging.judgeConcurrency) before the turn's deadline") from None
        try:
            reply = await self._post(
                self._body | {"messages": list(messages)}, min(self.timeout_sec, max(0.01, deadline - loop.time()))
            )
            return _content(reply)
        finally:
            self._slots.release()

    async def _post(self, body: Mapping[str, Any], timeout_sec: float) -> object:
        loop = asyncio.get_running_loop()
        started = loop.time()
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._state.count("requests")
        self._state.in_flight.inc()
        try:
            async with (
                asyncio.timeout(timeout_sec),
                self._session.post(self._url, json=body, headers=headers, allow_redirects=False) as response,
            ):
                text = await response.text(errors="replace")
                if response.status != 200:
                    raise _refusal(response.status, response.headers, text, self._key)
        except TimeoutError as error:
            self._state.count("timeouts")
            raise EndpointError(f"no answer within {timeout_sec:g} s") from error
        except aiohttp.ClientError as error:
            raise EndpointError(redact(f"{type(error).__name__}: {error}", self._key), retry=True) from error
        finally:
            self._state.in_flight.dec()
        self._state.latency.observe(loop.time() - started)
        return _json(text)


def redact(text: str, key: str | None) -> str:
    """`text` without the key and without anything that looks like one, cut to a line that fits a condition."""
    if key:
        text = text.replace(key, "[redacted]")
    return _KEY_LIKE.sub("[redacted]", " ".join(text.split()))[:_MAX_WORDS]


def _refusal(status: int, headers: Mapping[str, str], text: str, key: str | None) -> EndpointError:
    words = redact(f"HTTP {status}: {_error_words(text)}", key)
    if status in (401, 403):
        return EndpointError(
            f"{words.rstrip('.')}; put a key it takes into the Secret of {_KEY_FIELD}", refused_key=True
        )
    return EndpointError(words, retry=status in RETRIED_STATUS, retry_after=retry_after(headers.get("Retry-After")))


def _error_words(text: str) -> str:
    try:
        error = json.loads(text)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        return text or "(no body)"


def retry_after(value: str | None, now: Callable[[], float] = time.time) -> float | None:
    """Seconds of a Retry-After header, in either form; None when absent or garbled."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - now())


def _pause(error: EndpointError, attempt: int) -> float:
    if error.retry_after is not None:
        return error.retry_after
    return float(_FIRST_BACKOFF_SEC * 2**attempt * random.uniform(0.75, 1.25))


def _json(text: str) -> object:
    try:
        reply: object = json.loads(text)
    except ValueError as error:
        raise EndpointError("the endpoint answered 200 with something that is not JSON") from error
    return reply


def _content(reply: object) -> str | None:
    """The first choice's text; None when it is null (a refusal, or only reasoning)."""
    try:
        content = reply["choices"][0]["message"]["content"]  # type: ignore[index] # checked by the except clause
    except (KeyError, IndexError, TypeError) as error:
        raise EndpointError("the endpoint answered 200 without choices[0].message.content") from error
    return content if isinstance(content, str) else None
