"""The engines and which one serves a session. Pure: probes and watches tell it what is, it decides.

Rendezvous hashing keeps a session on one engine (its prefix is cached there); bounded load sends it to the next in
its own order when that one is busier than its share, and an engine at its cap gets nothing more. Engines of another
version than the fleet's come late, those that leave a probe unanswered last, and engines that are not ready not at all.
One that says it is ready and fails turn after turn is ejected for a while, unless nobody else is there.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from openclaw_core.versions import VersionFormatError, WeightVersion

_LOAD_FACTOR = 1.25
FAILURES_TO_EJECT = 3
"""Probes in a row without any answer; a refused connection or a 503 ejects at once."""
SILENT_SEC = 1.5
"""Without an answer for so long an engine gets new turns only where no other can have them."""
FAULTS_TO_EJECT = 5
EJECTED_SEC, EJECTED_MOST_SEC = 5.0, 60.0


@dataclass(eq=False)
class Engine:
    """One SGLang at `address` (host:port)."""

    address: str
    ready: bool = False
    version: str | None = None
    """Its weight_version when last asked; the base model's where versions are adapters."""
    adapters: frozenset[str] = frozenset()
    """Versions it holds as LoRA adapters, when last asked."""
    trusted: bool = False
    """No hold and no outage since that answer."""
    doubts: int = 0
    """Times it was distrusted: an answer that was on its way then proves nothing."""
    in_flight: int = 0
    failures: int = 0
    """Probes in a row without an answer."""
    silent_since: float = math.inf
    """When the first question left that it has not answered yet, on the gateway's monotonic clock; inf: none."""
    faults: int = 0
    """Turns in a row that it broke off or failed."""
    ejected_until: float = 0.0
    """On the gateway's monotonic clock; 0: not ejected."""

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def has(self, version: str) -> bool:
        """It can answer with this version now."""
        return version == self.version or version in self.adapters

    def distrust(self) -> None:
        """What it has may have changed: ask before believing."""
        self.trusted, self.doubts = False, self.doubts + 1

    def is_silent(self, now: float) -> bool:
        """It should have answered by now: it may hang, which is certain only some probes later."""
        return now - self.silent_since > SILENT_SEC

    def answering(self, wanted: str | None) -> str | None:
        """Where versions are adapters: the one that will answer; the newest it has if not the wanted one."""
        if wanted is not None and self.has(wanted):
            return wanted
        return max(self.adapters, key=_number, default=self.version)


class Fleet:
    """Engines by address; addresses come and go, an engine with requests in flight is only forgotten."""

    def __init__(self, most_in_flight: int | None = None) -> None:
        self.engines: dict[str, Engine] = {}
        self._most = most_in_flight
        """Requests one engine gets at once from this gateway; None: no cap."""

    def set_addresses(self, addresses: Iterable[str]) -> None:
        wanted = sorted(set(addresses))
        self.engines = {address: self.engines.get(address) or Engine(address) for address in wanted}

    def ready(self) -> list[Engine]:
        return [engine for engine in self.engines.values() if engine.ready]

    def choose(
        self, session: str, *, version: str | None, avoid: Engine | None = None, now: float = 0.0
    ) -> Engine | None:
        """The engine for a session; None when none is ready and below its cap.

        `avoid`, and engines that are ejected or silent, are taken only if there is no other.
        """
        room = [engine for engine in self.ready() if self._most is None or engine.in_flight < self._most]
        ready = [engine for engine in room if not engine.ejected_until] or room
        others = [engine for engine in ready if engine is not avoid] or ready
        lively = [engine for engine in others if not engine.is_silent(now)] or others
        preferred = [engine for engine in lively if version is None or engine.has(version)] or lively
        return pick(preferred, session)


def fault(engine: Engine, now: float) -> None:
    """It failed a turn. The fifth in a row ejects it, 5 s at first, twice as long each time after, at most 60 s."""
    engine.faults += 1
    over = engine.faults - FAULTS_TO_EJECT
    if over >= 0:
        engine.ejected_until = now + min(EJECTED_SEC * 2.0 ** min(over, 10), EJECTED_MOST_SEC)


def proven(engine: Engine) -> None:
    """It served a turn."""
    engine.faults, engine.ejected_until = 0, 0.0


def readmit(engine: Engine, now: float) -> None:
    """Its time is over: it gets turns again, and the next failure ejects it for longer."""
    if engine.ejected_until and now >= engine.ejected_until:
        engine.ejected_until = 0.0


def pick(engines: Sequence[Engine], session: str) -> Engine | None:
    """First in the session's own order that is below its bound: ceil(1.25 · (requests + 1) / engines)."""
    if not engines:
        return None
    total = sum(engine.in_flight for engine in engines) + 1
    bound = math.ceil(_LOAD_FACTOR * total / len(engines))
    ordered = sorted(engines, key=lambda engine: _weight(session, engine.address), reverse=True)
    return next((engine for engine in ordered if engine.in_flight < bound), ordered[0])


def _number(version: str) -> int:
    try:
        return WeightVersion.parse(version).number
    except VersionFormatError:
        return -1


def _weight(session: str, address: str) -> bytes:
    return blake2b(f"{session}\x00{address}".encode(), digest_size=8).digest()
