"""What the API server says about the pause Lease and the engines' addresses."""

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta

import pytest

from openclaw_core import leases
from openclaw_core.kube import GoneError, KubeError
from openclaw_gateway.engine_watch import EngineWatch, addresses
from openclaw_gateway.gate import Gate
from openclaw_gateway.lease_watch import LeaseWatch

V1 = "1-0a1b2c3d"
V2 = "2-0a1b2c3d"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class FakeKube:
    """Plays a script: each watch yields one list of events, then ends or raises."""

    def __init__(self, *watches, listed=()):
        self.watches, self.listed = list(watches), listed
        self.asked = []

    async def list(self, collection, **selectors):
        self.asked.append(("list", collection, selectors))
        return {"metadata": {"resourceVersion": "7"}, "items": list(self.listed)}

    async def watch(self, collection, **selectors):
        self.asked.append(("watch", collection, selectors))
        if not self.watches:
            await asyncio.Event().wait()
        for event in self.watches.pop(0):
            if isinstance(event, Exception):
                raise event
            yield event


def lease(epoch, *, held=True, duration=60, age=0.0):
    hold = leases.Hold(
        holder="op", epoch=epoch, acquired_at=NOW - timedelta(seconds=age), duration_sec=duration, pause_version=V1
    )
    return leases.render_weight_sync(
        leases.WeightSyncState(hold=hold if held else None, epoch=epoch, serving_version=V1)
    )


@contextlib.asynccontextmanager
async def watching(watch):
    task = asyncio.create_task(watch.run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def gate_of(kube):
    gate = Gate(holds_requests=False, now=asyncio.get_running_loop().time)
    return gate, LeaseWatch(kube, gate, namespace="ns", training="t")


@pytest.mark.looptime
async def test_late_word_of_a_claimed_epoch_does_not_undo_the_version_served_under_it():
    gate, watch = gate_of(FakeKube())
    claimed = leases.WeightSyncState(claim="op", epoch=2, serving_version=V1, target_version=V2)
    watch.seen(leases.render_weight_sync(claimed), NOW)
    assert not gate.is_on()
    assert (gate.pause.epoch, gate.pause.serving_version) == (1, V1)
    gate.release(2, V2)
    watch.seen(leases.render_weight_sync(claimed), NOW)
    assert (gate.pause.epoch, gate.pause.serving_version) == (2, V2)


@pytest.mark.looptime
async def test_hold_and_release_reach_the_gate():
    gate, watch = gate_of(FakeKube())
    watch.seen(lease(1, held=False), NOW)
    assert not gate.is_on()
    watch.seen(lease(2), NOW)
    assert gate.is_on() and gate.pause.epoch == 2
    watch.seen(lease(2, held=False), NOW)
    assert not gate.is_on()
    assert gate.pause.serving_version == V1


@pytest.mark.looptime
async def test_hold_of_a_dead_operator_is_ignored_at_first_sight():
    gate, watch = gate_of(FakeKube())
    watch.seen(lease(4, age=9000), NOW)
    assert not gate.is_on()


@pytest.mark.looptime
async def test_only_the_one_lease_is_listed_and_watched_from_there():
    kube = FakeKube([("MODIFIED", lease(2))], listed=[lease(1, held=False)])
    gate, watch = gate_of(kube)
    async with watching(watch):
        await asyncio.sleep(0.01)
    collection, only = "/apis/coordination.k8s.io/v1/namespaces/ns/leases", "metadata.name=t-weight-sync"
    assert kube.asked == [
        ("list", collection, {"field_selector": only}),
        ("watch", collection, {"field_selector": only, "resource_version": "7"}),
    ]
    assert gate.pause.epoch == 2


@pytest.mark.looptime
@pytest.mark.parametrize(
    "fault", [KubeError(500, "x", "y"), GoneError(410, "x", "y"), TimeoutError(), ConnectionError()]
)
async def test_broken_watch_starts_again_and_the_hold_still_expires(fault):
    error = fault if not isinstance(fault, ConnectionError) else _client_error()
    kube = FakeKube([("ADDED", lease(1)), error], [error], [error])
    gate, watch = gate_of(kube)
    async with watching(watch) as task:
        await asyncio.sleep(30)
        assert gate.pause.epoch == 1
        assert [kind for kind, *_ in kube.asked] == ["list", "watch"] * 4
        assert not task.done()


def _client_error():
    import aiohttp

    return aiohttp.ServerDisconnectedError()


@pytest.mark.looptime
async def test_garbled_lease_is_no_end_of_the_watch():
    garbled = {"metadata": {"annotations": {}}, "spec": {"holderIdentity": "x", "leaseTransitions": "many"}}
    gate, watch = gate_of(FakeKube([("MODIFIED", garbled)], [("MODIFIED", lease(3))]))
    async with watching(watch):
        await asyncio.sleep(5)
    assert gate.pause.epoch == 3


def endpoint_slice(name, *hosts, port=8000):
    return {
        "metadata": {"name": name},
        "ports": [{"name": "agent", "port": 8100}, {"name": "sglang", "port": port}],
        "endpoints": [{"addresses": [host], "conditions": {"ready": index == 0}} for index, host in enumerate(hosts)],
    }


def test_addresses_leave_out_an_engine_that_is_being_deleted():
    item = endpoint_slice("x", "10.0.0.1", "10.0.0.2", port=9000)
    item["endpoints"][0]["conditions"] = {"ready": False, "serving": True, "terminating": True}
    assert addresses(item) == {"10.0.0.2:9000"}


def test_addresses_include_engines_that_are_not_ready():
    assert addresses(endpoint_slice("x", "10.0.0.1", "10.0.0.2", port=9000)) == {"10.0.0.1:9000", "10.0.0.2:9000"}
    assert addresses(endpoint_slice("x", "fd00::1")) == {"[fd00::1]:8000"}
    assert addresses({"metadata": {"name": "x"}, "endpoints": None, "ports": None}) == frozenset()


@pytest.mark.looptime
async def test_engines_of_all_slices_come_and_go():
    told = []
    kube = FakeKube(
        [
            ("ADDED", endpoint_slice("b", "10.0.0.2")),
            ("BOOKMARK", {"metadata": {"resourceVersion": "9"}}),
            ("MODIFIED", endpoint_slice("a", "10.0.0.1", "10.0.0.3")),
            ("DELETED", endpoint_slice("b", "10.0.0.2")),
            GoneError(410, "Expired", "too old"),
        ],
        listed=[endpoint_slice("a", "10.0.0.1")],
    )
    async with watching(EngineWatch(kube, told.append, namespace="ns", training="t")):
        await asyncio.sleep(5)
    assert [sorted(address.split(":")[0][-1] for address in seen) for seen in told] == [
        ["1"],
        ["1", "2"],
        ["1", "2", "3"],
        ["1", "3"],
        ["1"],
    ]
    assert kube.asked[0][2] == {"label_selector": "kubernetes.io/service-name=t-engine"}
