"""The weight sync on a real API server, with stand-in engines: two of them, one gateway, published by hand."""

import time

import pytest

from openclaw_core import names
from openclaw_core.leases import render_published
from openclaw_core.versions import WeightVersion
from tests.cluster.lab import OPERATOR_NAMESPACE, Lab, kubectl, training, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def demo(lab: Lab) -> str:
    body = training()
    body["spec"]["policyServing"] |= {"replicas": 2, "pauseTimeoutSec": 10}
    lab.apply(body)
    lab.until_phase("demo", "Running")
    until("the base is served", lambda: served(lab) == "0-00000000", 20)
    return "demo"


def version(number: int, seconds: float = 0.0) -> WeightVersion:
    """A stand-in engine takes `seconds` for it."""
    return WeightVersion.of(number, f"{round(seconds * 10):02x}" + f"{number:06x}" + "0" * 56)


FIRST = version(1, 2.0)
"""Who is not done after the first engine gets as long again: fractions of a second pass on a busy machine."""


def publish(lab: Lab, wanted: WeightVersion) -> None:
    lab.patch("lease", "demo-published", render_published(wanted, wanted.digest8 * 8, 1))


def lease(lab: Lab) -> dict[str, object]:
    found: dict[str, object] = lab.get("lease", "demo-weight-sync")["spec"]
    return found


def epoch(lab: Lab) -> int:
    return int(str(lease(lab).get("leaseTransitions") or 0))


def served(lab: Lab) -> str | None:
    note: str | None = (
        lab.get("lease", "demo-weight-sync")["metadata"].get("annotations", {}).get(names.ANNOTATION_SERVING_VERSION)
    )
    return note


def engines(lab: Lab) -> list[str | None]:
    found = lab.status("demo").get("weights", {}).get("perEngine", [])
    return [engine.get("version") for engine in found]


def settled(lab: Lab, wanted: WeightVersion) -> bool:
    """Both engines have it, the fleet is said to serve it, and no hold is on."""
    return engines(lab) == [str(wanted)] * 2 and served(lab) == str(wanted) and not lease(lab).get("holderIdentity")


def test_published_version_reaches_every_engine_in_one_hold(lab: Lab, demo: str) -> None:
    before = epoch(lab)
    publish(lab, FIRST)
    until("both engines serve it", lambda: settled(lab, FIRST), 30)
    assert (served(lab), epoch(lab)) == (str(FIRST), before + 1)
    last = lab.status(demo)["weights"]["lastSync"]
    assert (last["result"], last["version"], last["epoch"]) == ("Succeeded", str(FIRST), before + 1)
    assert 2_000 <= last["pauseMs"] < 15_000
    (event,) = [event for event in lab.events(demo) if event["reason"] == "WeightSynced"]
    assert event["message"].startswith(f"weights {FIRST} served by 2/2 engines; submissions paused ")
    note = lab.get(names.PLURAL, demo)["metadata"]["annotations"][names.ANNOTATION_WEIGHT_SYNC]
    assert note == f"running epoch={before + 1} serving={FIRST}"


def test_engine_that_restarts_comes_back_at_the_target_without_a_hold(lab: Lab, demo: str) -> None:
    before = epoch(lab)
    lab.run("delete", "pod", lab.pods(demo, "engine")[0]["metadata"]["name"], "--wait=false")
    until("one engine is missing", lambda: not settled(lab, FIRST), 20, every=0.1)
    until("it is back at the version", lambda: settled(lab, FIRST), 60)
    assert epoch(lab) == before


def test_hold_of_a_dead_operator_ends_and_the_sync_is_completed(lab: Lab, demo: str) -> None:
    del demo
    slow = version(2, 4.0)
    before = epoch(lab)
    publish(lab, slow)
    until("the hold is there", lambda: lease(lab).get("holderIdentity"), 20, every=0.05)
    began = time.monotonic()
    kubectl("-n", OPERATOR_NAMESPACE, "delete", "pod", "--all", "--grace-period=0", "--force", "--wait=false")
    until("the hold is over", lambda: not lease(lab).get("holderIdentity"), 60, every=0.1)
    # pauseTimeoutSec is 10: gateways count it themselves, and the Lease says so once the next leader is there.
    assert time.monotonic() - began < 45
    until("the sync is completed", lambda: settled(lab, slow), 90)
    assert epoch(lab) > before + 1


def test_version_no_engine_can_load_in_time_is_given_up_and_the_next_one_served(lab: Lab, demo: str) -> None:
    hopeless = version(3, 25.5)
    good = served(lab)
    publish(lab, hopeless)
    until("it is bad", lambda: lab.status(demo)["weights"].get("badVersions") == [str(hopeless)], 120)
    assert served(lab) == good
    assert lab.condition(demo, "WeightSyncDegraded")["reason"] == "VersionBad"
    failures = [event for event in lab.events(demo) if event["reason"] == "WeightSyncFailed"]
    assert len(failures) == 2
    publish(lab, version(4))
    until("the next one is served", lambda: settled(lab, version(4)), 30)
    until("no trouble is left", lambda: lab.condition(demo, "WeightSyncDegraded")["status"] == "False", 20)


@pytest.mark.slow
@pytest.mark.usefixtures("demo")
def test_old_versions_become_deletable_but_never_the_newest_two(lab: Lab) -> None:
    for number in range(5, 9):
        publish(lab, version(number))
        until("it is served", lambda number=number: settled(lab, version(number)), 30)

    def releasable() -> list[int]:
        notes = lab.get("lease", "demo-weight-sync")["metadata"]["annotations"]
        return [int(word) for word in notes[names.ANNOTATION_RELEASABLE].split()]

    until("old versions are released", releasable, 200, every=2.0)
    assert max(releasable()) <= 6
