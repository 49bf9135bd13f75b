"""What is known of a training's engines, and what to ask their agents next. No I/O, no clock, no Lease.

The machine decides *when* an engine changes; the fleet knows which ones are reachable, prepared, busy or behind, and
turns a wish into at most one open call per engine.
"""

from openclaw_core.wire import AgentState
from openclaw_operator.weightsync import model as m


class Fleet:
    """Engines by pod uid. `now` is monotonic seconds, from outside."""

    def __init__(self) -> None:
        self.pods: dict[str, m.EnginePod] = {}
        self._pace, self._round = 1, 0
        self._agents: dict[str, m.Agent] = {}
        self.preparations: dict[str, m.Preparation] = {}
        self.syncing: dict[str, m.SyncEngine] = {}
        self.solos: dict[str, m.Solo] = {}

    # ------------------------------------------------------------ taking in

    def seen(self, pods: tuple[m.EnginePod, ...], now: float, pace: int = 1) -> None:
        """The pods that exist now; what was known of others is forgotten. One that became Ready, or stopped being so,
        is asked at once."""
        before, self.pods, self._pace = self.pods, {pod.uid: pod for pod in pods}, pace
        for uid in sorted(self.pods.keys() - self._agents.keys()):
            self._agents[uid] = m.Agent(first_seen_at=now, moved_at=now)
        for uid in before.keys() & self.pods.keys():
            if before[uid] != self.pods[uid]:
                self._agents[uid].moved_at, self._agents[uid].asked_at = now, float("-inf")
        for table in (self._agents, self.preparations, self.syncing, self.solos):
            for uid in table.keys() - self.pods.keys():
                del table[uid]

    def answered(self, uid: str, state: AgentState | None, now: float) -> None:
        """GET /state ended; None: unreachable."""
        agent = self._agents.get(uid)
        if agent is None:
            return
        agent.asking = False
        if state is not None:
            agent.state, agent.answered_at, agent.answered_round = state, agent.sent_at, agent.sent_round

    def prepare_ended(self, ended: m.PrepareEnded, now: float) -> None:
        known, solo = self.preparations.get(ended.uid), self.solos.get(ended.uid)
        if known is None or known.version != ended.version:
            return
        known.asking, known.error = False, ended.error
        if ended.error is not None and solo is not None and solo.version == ended.version:
            _put_off(solo, ended.error, now)

    def sync_ended(self, ended: m.SyncEnded) -> bool:
        """POST /sync ended; True when it was the open call of that engine."""
        pending = self.syncing.get(ended.uid)
        ours = pending is not None and (pending.epoch, pending.version) == (ended.epoch, ended.version)
        if ours:
            del self.syncing[ended.uid]
        agent = self._agents.get(ended.uid)
        if agent is not None:
            agent.asked_at, agent.answered_round, agent.sent_round = float("-inf"), 0, 0
            if ended.answer is not None and agent.state is not None:
                highest = max(agent.state.highest_epoch, ended.epoch)
                seen = {"version": ended.answer.version, "highest_epoch": highest}
                agent.state = agent.state.model_copy(update=seen)
        return ours

    def try_again(self) -> None:
        """Forget what failed: preparations and updates of single engines are tried again at once."""
        self.solos.clear()
        for uid in [uid for uid, known in self.preparations.items() if not known.asking]:
            del self.preparations[uid]

    def solo_ended(self, ended: m.SyncEnded, now: float) -> bool:
        """An update without a hold ended; True when the engine has the version now, else it is tried again later."""
        solo = self._solo(ended.uid, ended.version)
        if ended.answer is not None and ended.answer.ok and ended.answer.version == ended.version:
            solo.tries, solo.error = 0, None
            return True
        _put_off(solo, error_of(ended), now)
        self.preparations.pop(ended.uid, None)
        return False

    # ------------------------------------------------------------ looking

    def states(self, now: float) -> dict[str, AgentState]:
        """States of reachable agents."""
        agents = self._agents.items()
        return {uid: agent.state for uid, agent in agents if agent.state is not None and self._fresh(agent, now)}

    def ready(self, now: float) -> list[str]:
        """Reachable engines with a version loaded: those a sync can reach."""
        found = self.states(now).items()
        return sorted(uid for uid, state in found if state.ready and state.version is not None)

    def introduced(self, now: float) -> bool:
        """Every Ready engine's agent answered once, or had its time to."""
        waiting = (self._agents[uid] for uid, pod in self.pods.items() if pod.ready)
        return all(agent.state is not None or now - agent.first_seen_at >= m.FIRST_WORD_SEC for agent in waiting)

    def unknown(self, now: float) -> bool:
        """Some engine may be serving a version we do not know: its agent is silent, and it is Ready or was lately."""
        states = self.states(now)
        return any(uid not in states and (pod.ready or self._silent(uid, now)) for uid, pod in self.pods.items())

    def confirmed(self, asking: int, now: float) -> bool:
        """Every reachable engine answered a question that left since this `ask_again`, and none is being changed."""
        return all(self._agents[uid].answered_round >= asking and not self.busy(uid) for uid in self.states(now))

    def _silent(self, uid: str, now: float) -> bool:
        agent = self._agents[uid]
        return now - max(agent.answered_at, agent.first_seen_at) < m.GIVEN_UP_SEC

    def version(self, uid: str) -> str | None:
        agent = self._agents.get(uid)
        return agent.state.version if agent is not None and agent.state is not None else None

    def versions(self) -> set[str]:
        """Versions some engine serves, holds as an adapter, starts with, or is being told to load."""
        states = [agent.state for agent in self._agents.values() if agent.state is not None]
        found = {version for state in states for version in (state.version, state.starting, *state.adapters)}
        return {version for version in found if version} | {action.version for action in self.syncing.values()}

    def commonest(self, now: float) -> str | None:
        """Version most reachable engines serve; of equally many, the first of their names."""
        found = sorted(state.version for state in self.states(now).values() if state.version is not None)
        return max(found, key=found.count, default=None)

    def highest_epoch(self, now: float) -> int:
        return max((state.highest_epoch for state in self.states(now).values()), default=0)

    def prepared(self, uid: str, version: str) -> bool:
        known = self.preparations.get(uid)
        return known is not None and known.version == version and not known.asking and known.error is None

    def busy(self, uid: str) -> bool:
        """An update is under way on this engine, ours or one its agent still runs."""
        agent = self._agents.get(uid)
        state = agent.state if agent is not None else None
        return uid in self.syncing or (state is not None and (state.paused or state.phase in ("syncing", "loading")))

    def gave_up(self, uid: str, version: str) -> bool:
        """It was told alone to load a version, failed as often as a version may, and does not have it."""
        solo = self.solos.get(uid)
        told = solo is not None and solo.version == version and solo.tries >= m.HOLDS_UNTIL_BAD
        return told and self.version(uid) != version

    def name(self, uid: str) -> str:
        return self.pods[uid].name if uid in self.pods else uid

    # ------------------------------------------------------------ asking

    def polls(self, serving: str | None, now: float) -> list[m.PollAgent]:
        """Agents to ask for their state now: often while something is in motion, seldom when all is at `serving`, and
        the more seldom the longer one has been silent."""
        due = [uid for uid, agent in self._agents.items() if not agent.asking and now >= self._due(uid, serving, now)]
        for uid in due:
            agent = self._agents[uid]
            agent.asking, agent.asked_at = True, now
            agent.sent_at, agent.sent_round = now, self._round
        return [m.PollAgent(uid) for uid in due]

    def ask_again(self) -> int:
        """Have every agent asked now, whatever it answered lately; the number of this round of questions."""
        self._round += 1
        for agent in self._agents.values():
            agent.asked_at = float("-inf")
        return self._round

    def next_poll(self, serving: str | None, now: float) -> float:
        """When to look again, whoever answers by then: what is fresh now may not be so any more."""
        idle = [self._due(uid, serving, now) for uid, agent in self._agents.items() if not agent.asking]
        return min([*idle, now + self._pace * (m.POLL_IDLE_SEC if self.states(now) else m.POLL_SILENT_MAX_SEC)])

    def solo_times(self) -> list[float]:
        """When single engines may be tried again."""
        return [solo.not_before for solo in self.solos.values()]

    def prepare(self, uid: str, version: str, now: float) -> list[m.PrepareEngine]:
        """Ask one agent to prepare, unless it is asked already or failed a moment ago."""
        known = self.preparations.get(uid)
        if known is not None and (known.asking or known.version == version):
            recent = now - known.asked_at < m.PREPARE_RETRY_SEC
            if known.asking or recent:
                return []
        self.preparations[uid] = m.Preparation(version, now)
        return [m.PrepareEngine(uid, version)]

    def sync(self, uid: str, epoch: int, version: str, deadline_sec: float, *, again: bool = False) -> m.SyncEngine:
        action = m.SyncEngine(uid, epoch, version, deadline_sec, again)
        self.syncing[uid] = action
        return action

    def solo(
        self, uid: str, epoch: int, wanted: str, seconds: float, now: float, *, one_by_one: bool = False
    ) -> list[m.Action]:
        """Bring one engine that merely differs to `wanted`: prepare first, then sync, with backoff.

        `one_by_one`: only while no other engine is on its way there, for they serve until they change.
        """
        solo = self._solo(uid, wanted)
        if self.version(uid) == wanted:
            solo.tries, solo.error = 0, None
            return []
        if now < solo.not_before or self.busy(uid):
            return []
        if not self.prepared(uid, wanted):
            return list(self.prepare(uid, wanted, now))
        if one_by_one and any(action.version == wanted for action in self.syncing.values()):
            return []
        return [self.sync(uid, epoch, wanted, seconds, again=solo.tries > 0)]

    def _solo(self, uid: str, version: str) -> m.Solo:
        """What is known of bringing an engine to this version; of another one nothing is kept."""
        known = self.solos.get(uid)
        if known is None or known.version != version:
            known = self.solos[uid] = m.Solo(version)
        return known

    def _due(self, uid: str, serving: str | None, now: float) -> float:
        agent = self._agents[uid]
        calm = agent.state is not None and agent.state.ready and not agent.state.paused and self._fresh(agent, now)
        settled = calm and self.version(uid) == serving
        if settled:
            return agent.asked_at + self._pace * m.POLL_IDLE_SEC
        silence = agent.asked_at - max(agent.answered_at, agent.moved_at)
        patience = self._pace * min(silence / m.POLL_SILENT_PART, m.POLL_SILENT_MAX_SEC)
        return agent.asked_at + max(m.POLL_SOON_SEC, patience)

    def _fresh(self, agent: m.Agent, now: float) -> bool:
        return now - agent.answered_at < m.FRESH_SEC + (self._pace - 1) * m.POLL_IDLE_SEC


def _put_off(solo: m.Solo, error: str, now: float) -> None:
    """One more try failed; the next may begin the later the more did."""
    solo.error = error
    solo.not_before = now + min(m.SOLO_RETRY_SEC * 2.0**solo.tries, m.SOLO_RETRY_MAX_SEC)
    solo.tries += 1


def error_of(ended: m.SyncEnded) -> str:
    """Why an engine does not have the version, in one sentence."""
    if ended.error:
        return ended.error
    if ended.answer is None:
        return "no answer"
    return ended.answer.error or f"the engine serves {ended.answer.version}"
