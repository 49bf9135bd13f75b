"""The admin's hold: what of it counts, where gateways find it, what status says, and that no pod is rolled for it."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest

from openclaw_core import names
from openclaw_core.config.policy_serving import Hold
from openclaw_core.leases import SubmissionHold, parse_submission_hold, parse_weight_sync
from openclaw_core.status import ConditionType
from openclaw_operator import holds
from openclaw_operator.builders.leases import leases
from openclaw_operator.conditions import Facts
from openclaw_operator.holds import HoldState
from openclaw_operator.live import fingerprint
from openclaw_operator.periodic import Change, Periodic
from openclaw_operator.plan import plan
from openclaw_operator.reconcile import Reconciler
from openclaw_operator.status import compute, events
from openclaw_operator.training import InvalidSpecError, Key, parse
from tests.unit.operator.memory_kube import MemoryKube
from tests.unit.operator.test_reconcile import KEY, TRAINING, cluster, reconciler, settle
from tests.unit.operator.test_status import facts
from tests.unit.operator.trainings import body, context, training

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = "/apis/coordination.k8s.io/v1/namespaces/lab/leases/demo-weight-sync"


def hold(**ahead: float) -> Hold:
    return Hold(until=NOW + timedelta(**ahead), reason="storage is being moved")


def serving(until: str) -> dict[str, Any]:
    return {"device": "cpu", "hold": {"until": until, "reason": "storage is being moved"}}


def text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(
    ("ahead", "state"),
    [
        ({"seconds": 1}, HoldState.IN_FORCE),
        ({"seconds": 0}, HoldState.OVER),
        ({"days": -9}, HoldState.OVER),
        ({"hours": 24, "minutes": 5}, HoldState.IN_FORCE),
        ({"hours": 24, "minutes": 6}, HoldState.TOO_LONG),
    ],
)
def test_hold_counts_until_its_time_unless_that_is_too_far(ahead: dict[str, float], state: HoldState) -> None:
    assert holds.state(hold(**ahead), NOW) == state
    assert (holds.enforced(hold(**ahead), NOW) is None) == (state == HoldState.TOO_LONG)


def test_hold_is_written_on_the_lease_of_the_sync_alone_and_read_back() -> None:
    held = SubmissionHold(until=NOW, reason="why “not”")
    sync, published = leases(training(), held)
    assert parse_submission_hold(sync) == held
    assert "annotations" not in published["metadata"]
    assert parse_weight_sync(sync).hold is None  # no weight sync: the two holds have nothing to do with each other


def test_hold_rolls_no_pod() -> None:
    before = plan(context(), frozenset())
    of = training(policyServing=serving("2026-01-01T01:00:00Z"))
    after = plan(context(of, hold=SubmissionHold(until=NOW, reason="why")), frozenset())
    assert [before.revision(name) for name in names.COMPONENTS] == [after.revision(name) for name in names.COMPONENTS]
    assert [child for child in before.children if child["kind"] == "ConfigMap"] == [
        child for child in after.children if child["kind"] == "ConfigMap"
    ]


def test_hold_without_a_time_zone_is_refused_by_name() -> None:
    with pytest.raises(InvalidSpecError, match=r"spec\.policyServing\.hold\.until"):
        parse(body(policyServing=serving("2026-01-01T01:00:00")))


def held_facts(state: HoldState, **changes: Any) -> Facts:
    return replace(facts(), hold=hold(hours=1), hold_state=state, **changes)


def test_status_says_until_when_and_why_submissions_are_held_and_stays_ready() -> None:
    status = compute(held_facts(HoldState.IN_FORCE))
    found = next(item for item in status.conditions or [] if item.type == ConditionType.SUBMISSIONS_HELD)
    words = "submissions are held until 2026-01-01T01:00:00Z: storage is being moved"
    assert (found.status, found.reason, found.message) == ("True", "OnHold", words)
    assert (status.phase, status.message) == ("Running", words)


def test_begin_and_end_of_a_hold_are_events() -> None:
    running, held = compute(facts()), compute(held_facts(HoldState.IN_FORCE))
    over = compute(held_facts(HoldState.OVER))
    (begun,) = events(running, held)
    assert (begun.kind, begun.reason) == ("Normal", "OnHold")
    assert begun.message.endswith("storage is being moved")
    (ended,) = events(held, over)
    assert (ended.kind, ended.reason) == ("Normal", "HoldOver")


def test_hold_that_is_too_long_is_a_fault_naming_the_field_and_the_time() -> None:
    status = compute(held_facts(HoldState.TOO_LONG))
    found = {item.type: item for item in status.conditions or []}
    assert (found["ConfigValid"].status, found["ConfigValid"].reason) == ("False", "HoldTooLong")
    assert "spec.policyServing.hold.until is 2026-01-01T01:00:00Z" in found["ConfigValid"].message
    assert found["Ready"].status == "False"
    assert found["SubmissionsHeld"].status == "False"


def note(kube: MemoryKube) -> SubmissionHold | None:
    return parse_submission_hold(kube.objects[LEASE])


@pytest.mark.looptime
async def test_edit_of_the_hold_reaches_the_lease_and_a_removed_annotation_comes_back() -> None:
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    kube = cluster()
    async with reconciler(kube) as found:
        await settle(found)
        assert note(kube) is None
        kube.objects[TRAINING]["spec"]["policyServing"] = serving(text(until))
        await settle(found, passes=1)
        assert note(kube) == SubmissionHold(until=until, reason="storage is being moved")
        del kube.objects[LEASE]["metadata"]["annotations"][names.ANNOTATION_HOLD]
        await settle(found, passes=1)
        assert note(kube) is not None
        before = len(kube.writes())
        await settle(found)
        assert kube.writes()[before:] == []


@pytest.mark.looptime
async def test_hold_that_is_too_long_never_reaches_the_lease() -> None:
    kube = cluster(policyServing=serving(text(datetime.now(UTC) + timedelta(days=2))))
    async with reconciler(kube) as found:
        await settle(found)
    assert note(kube) is None


def test_what_others_write_on_the_lease_is_not_taken_for_drift_of_the_hold() -> None:
    (sync, _) = leases(training(), SubmissionHold(until=NOW, reason="why"))
    written = {**sync, "metadata": {**sync["metadata"], "annotations": sync["metadata"]["annotations"] | {"x": "y"}}}
    assert fingerprint("Lease", sync) == fingerprint("Lease", written)
    (bare, _) = leases(training(), None)
    assert fingerprint("Lease", sync) != fingerprint("Lease", bare)


@pytest.mark.looptime
async def test_end_of_a_hold_asks_for_a_pass_without_an_edit() -> None:
    kube = cluster(policyServing=serving(text(datetime.now(UTC) + timedelta(seconds=1))))
    asked: list[tuple[Key, Change]] = []
    async with reconciler(kube) as found, aiohttp.ClientSession() as session:
        await settle(found, passes=1)
        ticking = asyncio.create_task(_periodic(found, session, asked).run())
        await asyncio.sleep(2)
        assert (KEY, Change.KNOWN) in asked
        asked.clear()
        # The hold's end is told by the wall clock, which virtual time does not move.
        state = found.states[KEY]
        assert state.training is not None
        state.training = parse(body(policyServing=serving("2026-01-01T00:00:00Z")))
        await asyncio.sleep(2)
        assert (KEY, Change.KNOWN) in asked
        ticking.cancel()


def _periodic(found: Reconciler, session: aiohttp.ClientSession, asked: list[tuple[Key, Change]]) -> Periodic:
    return Periodic(found, session, lambda key, afresh: asked.append((key, afresh)))
