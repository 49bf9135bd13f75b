"""HTTP client of the sync agents: one call per message of `wire.py`, every call bounded, no exception passes."""

import contextlib
from dataclasses import dataclass, field

import aiohttp
from pydantic import ValidationError

from openclaw_core import names
from openclaw_core.wire import AgentState, Prepare, Prepared, Retain, Sync, Synced

_STATE_TIMEOUT = aiohttp.ClientTimeout(total=3)
_PREPARE_TIMEOUT = aiohttp.ClientTimeout(total=600, sock_connect=3)
_SYNC_SLACK_SEC = 3.0
_FAILURES = (aiohttp.ClientError, TimeoutError, ValidationError)


@dataclass(frozen=True)
class Agents:
    """Calls agents of one training by pod IP."""

    session: aiohttp.ClientSession
    token: str = field(repr=False)

    async def state(self, ip: str) -> AgentState | None:
        """None when it does not answer."""
        try:
            async with self.session.get(_url(ip, "state"), headers=self._headers(), timeout=_STATE_TIMEOUT) as response:
                return AgentState.model_validate_json(await response.read()) if response.status == 200 else None
        except _FAILURES:
            return None

    async def prepare(self, ip: str, version: str) -> str | None:
        """None: prepared. Else the reason why not."""
        try:
            status, body = await self._post(ip, "prepare", Prepare(version=version).model_dump_json(), _PREPARE_TIMEOUT)
            if status != 200:
                return _refusal(status, body)
            answer = Prepared.model_validate_json(body)
            return None if answer.ready else answer.error or "not ready"
        except _FAILURES as error:
            return _words(error)

    async def sync(self, ip: str, order: Sync) -> tuple[Synced | None, str | None, bool]:
        """(answer, None, False), or (None, reason, whether the agent refused to try: it starts, or runs another)."""
        timeout = aiohttp.ClientTimeout(total=order.deadline_sec + _SYNC_SLACK_SEC, sock_connect=3)
        try:
            status, reply = await self._post(ip, "sync", order.model_dump_json(exclude_none=True), timeout)
            if status == 200:
                return Synced.model_validate_json(reply), None, False
            return None, _refusal(status, reply), status == 409
        except _FAILURES as error:
            return None, _words(error), False

    async def retain(self, ip: str, versions: tuple[str, ...]) -> None:
        """Say which adapters may stay. A lost word is repeated by the machine."""
        body = Retain(versions=list(versions)).model_dump_json()
        with contextlib.suppress(*_FAILURES):
            await self._post(ip, "retain", body, _STATE_TIMEOUT)

    async def _post(self, ip: str, call: str, body: str, timeout: aiohttp.ClientTimeout) -> tuple[int, bytes]:
        headers = self._headers() | {"Content-Type": "application/json"}
        async with self.session.post(_url(ip, call), data=body, headers=headers, timeout=timeout) as response:
            return response.status, await response.read()

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


def host(ip: str) -> str:
    """An address as it stands in a URL."""
    return f"[{ip}]" if ":" in ip else ip


def _url(ip: str, call: str) -> str:
    return f"http://{host(ip)}:{names.PORT_AGENT}/{call}"


def _refusal(status: int, body: bytes) -> str:
    return f"the agent answered {status}: {body[:200].decode(errors='replace')}"


def _words(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return f"no answer from the agent: {text[:200]}"
