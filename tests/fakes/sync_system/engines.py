"""An engine pod: the real steps of the agent's exchange around a modelled SGLang that may fail, hang, lie or die."""

from collections.abc import Callable
from dataclasses import dataclass

from openclaw_core.versions import BASE, WeightVersion
from openclaw_core.wire import AgentState, Sync, Synced
from openclaw_engine import machine
from openclaw_engine.machine import Exchange, Step
from tests.fakes.sync_system.timeline import Timeline

Answer = Callable[[Synced | None, str | None], None]
SETTLE_LIMIT_SEC = 60.0
HANG_SEC = 25.0
"""A hung call of SGLang ends after this long, with its effect."""


@dataclass
class Sglang:
    """One SGLang process."""

    version: str
    paused_since: float | None = None
    busy_until: float = 0.0
    """Until then its scheduler does nothing else."""


@dataclass
class Behaviour:
    """What is wrong with an engine, until when."""

    fails_until: float = 0.0
    """Updates answer success: false and change nothing."""
    dirty_until: float = 0.0
    """Calls answer an error though they had their effect: success: false though the weights changed."""
    lies_until: float = 0.0
    """Updates answer success, but nothing changed."""
    hangs_until: float = 0.0
    """Calls take HANG_SEC."""
    silent_until: float = 0.0
    """The agent cannot be reached: partitioned."""


class Engine:
    """One pod. `loadable` raises when a version's directory is gone; `bad` versions fail everywhere; every
    update that took effect is added to `landed`, (epoch, version)."""

    def __init__(
        self,
        uid: str,
        time: Timeline,
        *,
        target: Callable[[], str | None],
        loadable: Callable[[str], bool],
        bad: set[str],
        landed: set[tuple[int, str]],
        slowness: float = 0.0,
    ) -> None:
        self.uid, self.ip = uid, uid
        self._time, self._target, self._loadable, self._bad = time, target, loadable, bad
        self._landed = landed
        self._slowness = slowness
        """How many times as long as usual SGLang starts, with what was the target at the begin; 0: at once, and with
        what is the target in the end."""
        self._starting: str | None = None
        self.behaviour = Behaviour()
        self.sglang: Sglang | None = None
        self.up = False
        self.known: str | None = None
        """Version the agent believes loaded."""
        self.since = 0.0
        """When `known` was last learnt."""
        self.highest = 0
        """Persisted: it outlives the container."""
        self.exchange: Exchange | None = None
        self.container = 0
        self.changes: list[tuple[float, int, str]] = []
        """(time, epoch, version) of every update that landed."""
        self._queued: tuple[Sync, Answer] | None = None
        self._running: tuple[Sync, Answer] | None = None
        self.start()

    # ------------------------------------------------------------ container

    def start(self) -> None:
        container = self.container
        self._starting = self._chosen() if self._slowness else None
        self._time.at(self._time.between(1.0, 8.0) * (self._slowness or 1.0), lambda: self._started(container))

    def _chosen(self) -> str:
        wanted = self._target() or str(BASE)
        return wanted if self._loadable(wanted) and wanted not in self._bad else str(BASE)

    def _started(self, container: int) -> None:
        if container != self.container:
            return
        version = self._starting or self._chosen()
        assert self._loadable(version)
        self.sglang, self._starting = Sglang(version), None
        self.known, self.up, self.since = version, True, self._time.now

    def restart(self) -> None:
        """The container ends, and SGLang with it; Kubernetes starts both again."""
        self.container += 1
        for order in (self._running, self._queued):
            if order is not None:
                order[1](None, "connection reset")
        self.sglang, self.up, self.known, self.exchange = None, False, None, None
        self._queued = self._running = None
        self.start()

    def vanish(self) -> None:
        """The pod is deleted: what starts now never ends."""
        self.restart()
        self.container += 1

    def silent(self) -> bool:
        return self._time.now < self.behaviour.silent_until

    # ------------------------------------------------------------ the agent's HTTP surface

    def state(self) -> AgentState:
        return AgentState.model_construct(
            version=self.known,
            starting=self._starting,
            target=None,
            ready=self.up,
            paused=self.exchange is not None and self.exchange.paused,
            highest_epoch=self.highest,
            phase="starting" if not self.up else "syncing" if self.exchange else "serving",
        )

    def prepare(self, version: str) -> str | None:
        return None if self._loadable(version) else f"v{version} is not there"

    def sync(self, order: Sync, answer: Answer) -> None:
        if not self.up:
            answer(None, "the agent answered 409: starting")
            return
        try:
            self.highest = machine.admit(self.highest, self.exchange, order.epoch)
        except machine.RefusedError as refusal:
            answer(None, f"the agent answered 409: {refusal}")
            return
        now = self._time.now
        self.exchange = Exchange(order.epoch, order.version, now, now + order.deadline_sec)
        self._queued = (order, answer)
        self._next_order()

    # ------------------------------------------------------------ one exchange

    def _next_order(self) -> None:
        if self._queued is None or self._running is not None:
            return
        self._running, self._queued = self._queued, None
        order, _ = self._running
        exchange = self.exchange
        assert exchange is not None
        if self.known == order.version:
            self.exchange = None
            self._reply(Synced.model_construct(epoch=order.epoch, version=order.version, ok=True))
        elif not self._loadable(order.version):
            self._step(machine.after(exchange, Step.UPDATE, exchange.began, self._time.now, "not there"))
        else:
            self._step(exchange)

    def _step(self, exchange: Exchange) -> None:
        """Take steps until DONE, each over the timeline, as the agent's loop does."""
        self.exchange = exchange
        began = self._time.now
        step = machine.next_step(exchange, began)
        if step is Step.DONE:
            assert self.sglang is not None
            assert self.sglang.paused_since is None, f"{self.uid}: the exchange is over and SGLang stands still"
            self.exchange = None
            self._report(exchange)
        elif step is Step.LOST:
            self.restart()
        else:
            self._call(exchange, step, began, machine.time_limit(exchange, step, began))

    def _call(self, exchange: Exchange, step: Step, began: float, limit: float) -> None:
        container, sglang = self.container, self.sglang
        assert sglang is not None
        takes = self._takes(sglang, step)
        error = self._effect(sglang, exchange, step, takes)
        if takes > limit:
            error = f"{step} did not answer within {limit:.1f} s"

        def ended() -> None:
            if container == self.container:
                self._step(machine.after(exchange, step, began, self._time.now, error))

        retry = 0.2 if step is Step.CONTINUE and error is not None else 0.0
        self._time.at(min(takes, limit) + retry, ended)

    def _takes(self, sglang: Sglang, step: Step) -> float:
        waits = max(0.0, sglang.busy_until - self._time.now) if step in (Step.UPDATE, Step.VERIFY) else 0.0
        if self._hung():
            return waits + HANG_SEC
        return waits + (self._time.between(0.02, 0.4) if step is Step.UPDATE else 0.003)

    def _effect(self, sglang: Sglang, exchange: Exchange, step: Step, takes: float) -> str | None:
        """What a call does to SGLang once it is through, whether anybody still waits or not; its error."""
        dirty = "an error, and yet it worked" if self._time.now < self.behaviour.dirty_until else None
        if step is Step.VERIFY:
            return f"SGLang reports version {sglang.version}" if sglang.version != exchange.version else None
        if step is Step.UPDATE:
            return self._update(sglang, exchange, takes) or dirty
        self._then(sglang, takes, lambda: self._pause(sglang) if step is Step.PAUSE else self._resume(sglang))
        return dirty

    def _update(self, sglang: Sglang, exchange: Exchange, takes: float) -> str | None:
        behaviour, now = self.behaviour, self._time.now
        sglang.busy_until = now + takes
        if now < behaviour.fails_until or exchange.version in self._bad:
            return "success: false"
        if now < behaviour.lies_until:
            return None
        self._then(sglang, takes, lambda: self._change(sglang, exchange))
        return None

    def _then(self, sglang: Sglang, takes: float, effect: Callable[[], None]) -> None:
        self._time.at(takes, lambda: effect() if self.sglang is sglang else None)

    def _pause(self, sglang: Sglang) -> None:
        sglang.paused_since = sglang.paused_since or self._time.now
        self._time.at(self._time.between(1.0, 2.0), lambda: self._watch(sglang))

    def _resume(self, sglang: Sglang) -> None:
        sglang.paused_since = None

    def _watch(self, sglang: Sglang) -> None:
        """The agent's watch: a pause that belongs to no exchange ends."""
        if self.sglang is not sglang or sglang.paused_since is None:
            return
        if self.exchange is None and not self._hung():
            sglang.paused_since = None
        else:
            self._time.at(1.0, lambda: self._watch(sglang))

    def _hung(self) -> bool:
        return self._time.now < self.behaviour.hangs_until

    def _change(self, sglang: Sglang, exchange: Exchange) -> None:
        newest = max((epoch for _, epoch, _ in self.changes), default=0)
        assert exchange.epoch >= newest, f"{self.uid}: epoch {exchange.epoch} changed it after epoch {newest}"
        again = [seen for _, epoch, seen in self.changes if epoch == exchange.epoch]
        assert exchange.version in again[-1:] or exchange.version not in again, (
            f"{self.uid}: epoch {exchange.epoch} changed it there and back"
        )
        sglang.version = exchange.version
        self.changes.append((self._time.now, exchange.epoch, exchange.version))
        self._landed.add((exchange.epoch, exchange.version))

    def _report(self, exchange: Exchange) -> None:
        if exchange.ok:
            self.known = exchange.version
        elif exchange.paused_at is not None:
            self._settle(exchange)
            return
        self._answer(exchange)

    def _settle(self, exchange: Exchange) -> None:
        """The checksum is answered after an update that still runs; only then is the version known."""
        container, sglang = self.container, self.sglang
        assert sglang is not None
        hangs = HANG_SEC if self._hung() else 0.0
        takes = max(0.0, sglang.busy_until - self._time.now) + hangs + 0.02

        def settled() -> None:
            if container == self.container:
                self.known, self.since = sglang.version, self._time.now
                self._answer(exchange)

        if takes > SETTLE_LIMIT_SEC:
            self._time.at(SETTLE_LIMIT_SEC, lambda: self.restart() if container == self.container else None)
        else:
            self._time.at(takes, settled)

    def _answer(self, exchange: Exchange) -> None:
        synced = Synced.model_construct(
            epoch=exchange.epoch,
            version=self.known or str(BASE),
            ok=exchange.ok,
            error=machine.outcome(exchange),
            pause_sec=exchange.pause_sec,
        )
        self._reply(synced)

    def _reply(self, synced: Synced) -> None:
        assert self._running is not None
        _, answer = self._running
        self._running = None
        answer(synced, None)
        self._next_order()


def number(version: str) -> int:
    return WeightVersion.parse(version).number
