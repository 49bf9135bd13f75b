"""Whatever happens in whatever order: the accounting identity holds, bounds hold, nothing is trained twice."""

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from openclaw_core import wire
from openclaw_gateway.store import judging, samples, turns
from openclaw_gateway.store.databases import Sqlite
from openclaw_gateway.store.samples import OldEpochError
from openclaw_gateway.store.turns import Begun
from tests.unit.gateway.stored import Stored

DROPS = st.sampled_from([None, None, None, "empty", "no_ids", "client_gone", "upstream_error", "modified_logits"])
SESSIONS = st.sampled_from([None, "a", "b"])


class StoreRules(RuleBasedStateMachine):
    """Drives the operations as gateways, judges and trainers would, late and in disorder included."""

    def database(self):
        return Sqlite(None)

    @initialize(
        drop_policy=st.sampled_from(["reject", "dropOldest"]),
        on_stale=st.sampled_from(["reject", "serveUntracked"]),
        fire=st.booleans(),
        in_order=st.booleans(),
    )
    def open(self, drop_policy, on_stale, fire, in_order):
        self.store = Stored(
            self.database(),
            max_head_off_policyness=1,
            rollout_batch_size=2,
            max_concurrent=3,
            max_size=4,
            drop_policy=drop_policy,
            on_stale=on_stale,
            fire_on_turn_end=fire,
            judge_in_order=in_order,
            judge_slots=2,
        )
        self.generating: list[tuple[Begun, list[str]]] = []
        self.histories: list[list[str]] = []
        self.judged: list[wire.JudgeTurn] = []
        self.leased: list[int] = []
        self.acked: set[int] = set()
        self.epoch = 1
        self.clock_start = self.store.now
        self.served = 0

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()

    @rule(session=SESSIONS, word=st.sampled_from("xyz"), done=st.booleans(), retry=st.booleans(), data=st.data())
    def request(self, session, word, done, retry, data):
        history = data.draw(st.sampled_from([[], *self.histories]))
        texts = [*history, word]
        admission = self.store.arrive(*texts, session=session, done=done, is_retry=retry)
        if isinstance(admission, Begun):
            self.generating.append((admission, texts))
            self.served += 1

    @precondition(lambda self: self.generating)
    @rule(data=st.data(), answer=st.sampled_from("AB"), drop=DROPS)
    def answer(self, data, answer, drop):
        turn, texts = self.generating.pop(data.draw(st.integers(0, len(self.generating) - 1)))
        self.store.finish(turn, *texts, answer=answer, drop=drop)
        if len(texts) < 5:
            self.histories.append([*texts, answer])

    @precondition(lambda self: self.generating)
    @rule()
    def withdraw(self):
        turn, _ = self.generating.pop()
        before = self.store.stats().served
        self.store.run(lambda tx: turns.withdraw(tx, turn.turn_id))
        self.served -= before - self.store.stats().served

    @rule()
    def crash(self):
        self.store.run(lambda tx: turns.lose_everything(tx))
        self.generating.clear()

    @rule(most=st.integers(1, 3))
    def judges_lease(self, most):
        self.judged += self.store.lease_turns(most, lease_sec=30)

    @precondition(lambda self: self.judged)
    @rule(data=st.data(), score=st.sampled_from([-1, 0, 1]))
    def judge_scores(self, data, score):
        turn = data.draw(st.sampled_from(self.judged))
        request = wire.ScoreTurn(id=turn.id, lease=turn.lease, score=score, votes=[score])
        self.store.run(lambda tx: judging.score(tx, request, self.store.policy))

    @precondition(lambda self: self.judged)
    @rule()
    def judge_drops(self):
        turn = self.judged.pop()
        request = wire.DropTurn(id=turn.id, lease=turn.lease, reason="unjudged")
        self.store.run(lambda tx: judging.drop(tx, request))

    @rule(batch=st.integers(1, 3), newer=st.booleans())
    def trainer_leases(self, batch, newer):
        self.epoch += newer
        leased = self.store.lease_samples(batch, epoch=self.epoch, min_batch=1, batch_wait_sec=0, lease_sec=30)
        ids = [sample.id for sample in leased or ()]
        assert not self.acked & set(ids), "a trained sample was leased again"
        self.leased += ids

    @precondition(lambda self: self.leased)
    @rule(late=st.booleans())
    def trainer_acks(self, late):
        epoch = self.epoch - late
        try:
            self.acked |= set(self.store.ack(*self.leased, epoch=epoch))
        except OldEpochError:
            assert late

    @precondition(lambda self: self.leased)
    @rule()
    def trainer_drops(self):
        request = wire.DropSamples(trainer_epoch=self.epoch, ids=[self.leased.pop()], reason="stale")
        self.store.run(lambda tx: samples.drop(tx, request))

    @rule(seconds=st.sampled_from([1, 31, 61, 2000]))
    def time_passes(self, seconds):
        self.store.now += seconds
        self.store.upkeep()

    @invariant()
    def identity_holds(self):
        if hasattr(self, "store"):
            shown = self.store.stats()  # checks the identity
            assert shown.served == self.served
            assert shown.trained == len(self.acked)
            assert shown.queued + shown.leased <= self.store.policy.max_size
            assert shown.waiting.generating <= self.store.policy.max_concurrent
            assert min(shown.dropped.values(), default=0) >= 0


RULES = settings(
    max_examples=15,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
StoreRules.TestCase.settings = RULES
test_store_rules = StoreRules.TestCase
