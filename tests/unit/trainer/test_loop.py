"""The whole loop against a store over HTTP: order, accounting, and every point at which it may be killed."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from openclaw_core.config.policy_training import Checkpoint, Lora, PolicyTraining
from openclaw_core.leases import WeightSyncState
from openclaw_core.versions import BASE, Manifest
from openclaw_core.wire import AckSamples, Sample
from openclaw_trainer import step as step_module
from openclaw_trainer.announce import FileAnnouncer
from openclaw_trainer.checkpoint import Checkpoints, Progress
from openclaw_trainer.gateway_client import GatewayClient
from openclaw_trainer.loop import Parts, TrainingLoop
from openclaw_trainer.policy import Policy
from openclaw_trainer.policy_loss import Outcome, micro_batch_loss
from openclaw_trainer.state import State
from openclaw_trainer.step import Learner
from openclaw_trainer.team import Team
from openclaw_trainer.volume import StaleEpochError, Volume
from openclaw_trainer.world import World
from tests.fakes.sample_store import TOKEN, SampleStore, serving
from tests.unit.trainer.sampling import batch_of


class Killed(BaseException):
    """The process dies here: nothing after it runs."""


class Site:
    """A weights volume, a store and everything a trainer needs to be started on them again and again."""

    def __init__(self, root: Path, base: Path, training: PolicyTraining, url: str, worker: ThreadPoolExecutor) -> None:
        self.root, self.base, self.training, self.url, self.worker = root, base, training, url, worker
        self.sampler = Policy.load(base, training).model

    @asynccontextmanager
    async def trainer(self) -> AsyncIterator[TrainingLoop]:
        async with GatewayClient(self.url, TOKEN) as gateway:
            yield TrainingLoop(
                Parts(
                    training=self.training,
                    team=Team(Learner(Policy.load(self.base, self.training), self.training), World()),
                    volume=Volume(self.root),
                    checkpoints=Checkpoints(self.root / "checkpoints", keep=3),
                    announcer=FileAnnouncer(self.root / "published.json"),
                    gateway=gateway,
                    state=State(),
                    worker=self.worker,
                    base=self.base,
                )
            )

    def samples(self, count: int, *, first: int = 0, version: int = 0) -> list[Sample]:
        return batch_of(self.sampler, count, first=first, version=version)

    async def announced(self) -> str:
        return str((await FileAnnouncer(self.root / "published.json").read()).version)


@pytest.fixture
def store() -> SampleStore:
    return SampleStore()


@pytest.fixture
async def site(
    tmp_path: Path, base: Path, training: PolicyTraining, store: SampleStore, worker: ThreadPoolExecutor
) -> AsyncIterator[Site]:
    async with serving(store) as url:
        yield Site(tmp_path, base, training, url, worker)


def _state(loop: TrainingLoop) -> Any:
    return loop._parts.state.snapshot()


async def test_batch_is_trained_published_announced_then_acked(site: Site, store: SampleStore) -> None:
    store.add(site.samples(8))
    seen: list[tuple[str, bool]] = []

    def at_ack(request: AckSamples) -> None:
        number = request.version.split("-")[0]
        seen.append((request.version, (site.root / f"v{number}" / "manifest.json").exists()))

    store.on_ack = at_ack
    async with site.trainer() as loop:
        await loop.start()
        await loop.one_batch()
        await loop.one_batch()
        state = _state(loop)
        metrics = loop._parts.state.metrics().decode()
    assert [complete for _, complete in seen] == [True, True]
    assert set(store.trained) == set(range(8)) and not store.leased
    assert store.trained[0] == seen[0][0] and store.trained[7] == seen[1][0] == await site.announced()
    assert [u.step for u in state.updates] == [1, 2] and state.version == seen[1][0]
    assert [(u.samples, u.reward_mean, u.lag_max) for u in state.updates] == [(4, 0.0, 0), (4, 0.0, 1)]
    assert state.updates[0].logprob_abs_diff < 1e-5 < state.updates[1].logprob_abs_diff
    assert state.updates[0].logprob_abs_diff_fresh is not None and state.updates[1].logprob_abs_diff_fresh is None
    assert 'openclawrl_trainer_samples_total{outcome="trained"} 8.0' in metrics


async def test_stale_and_long_samples_are_dropped_and_the_rest_trained(site: Site, store: SampleStore) -> None:
    site.training = site.training.model_copy(update={"stale_filter_steps": 0, "max_sequence_tokens": 16})
    long = site.samples(1, first=50)[0].model_copy(update={"prompt_ids": [1] * 20})
    async with site.trainer() as loop:
        await loop.start()
        store.add([*site.samples(3), long])
        await loop.one_batch()
        store.add([*site.samples(2, first=10, version=0), *site.samples(2, first=20, version=1)])
        await loop.one_batch()
    assert store.dropped == {50: "too_long", 10: "stale", 11: "stale"}
    assert set(store.trained) == {0, 1, 2, 20, 21}


async def test_batch_without_any_advantage_is_acked_and_publishes_nothing(site: Site, store: SampleStore) -> None:
    store.add(sample.model_copy(update={"score": 0}) for sample in site.samples(4))
    async with site.trainer() as loop:
        await loop.start()
        await loop.one_batch()
        state, metrics = _state(loop), loop._parts.state.metrics()
    assert b'openclawrl_trainer_samples_total{outcome="zero_advantage"} 4.0' in metrics
    assert store.trained == dict.fromkeys(range(4), str(BASE))
    assert (state.zero_advantage_batches, state.step, state.version, state.updates) == (1, 0, str(BASE), [])
    assert not (site.root / "v1").exists()


async def test_batch_that_is_not_finite_is_dropped_counted_and_survived(
    site: Site, store: SampleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(site.samples(8))
    async with site.trainer() as loop:
        await loop.start()
        with monkeypatch.context() as patched:
            patched.setattr(step_module, "micro_batch_loss", _poisoned)
            await loop.one_batch()
        await loop.one_batch()
        state = _state(loop)
    assert store.dropped == dict.fromkeys(range(4), "nan")
    assert set(store.trained) == {4, 5, 6, 7}
    assert (state.skipped_nan, state.step) == (1, 1)


def _poisoned(*arguments: Any) -> Outcome:
    outcome = micro_batch_loss(*arguments)
    return dataclasses.replace(outcome, loss=outcome.loss * torch.inf)


async def test_empty_poll_changes_nothing(site: Site, store: SampleStore) -> None:
    async with site.trainer() as loop:
        await loop.start()
        await loop.one_batch()
        assert _state(loop).step == 0
    assert store.calls["lease"] == 1 and store.calls["ack"] == 0


CRASHES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "before the step": lambda patch: patch.setattr(Learner, "step", _die),
    "before the checkpoint": lambda patch: patch.setattr(Checkpoints, "save", _die),
    "before publishing": lambda patch: patch.setattr(Volume, "publish", _die),
    "before announcing": lambda patch: patch.setattr(FileAnnouncer, "announce", _adie),
    "before the ack": lambda patch: patch.setattr(GatewayClient, "ack", _adie),
}


def _die(*_: Any, **__: Any) -> None:
    raise Killed


async def _adie(*_: Any, **__: Any) -> None:
    raise Killed


@pytest.mark.parametrize("moment", CRASHES)
async def test_killed_trainer_loses_and_repeats_no_sample(
    site: Site, store: SampleStore, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    store.add(site.samples(8))
    async with site.trainer() as loop:
        await loop.start()
        await loop.one_batch()
        with monkeypatch.context() as patched:
            CRASHES[moment](patched)
            with pytest.raises(Killed):
                await loop.one_batch()
    store.expire_leases()
    async with site.trainer() as loop:
        await loop.start()
        await loop.one_batch()
        state, weights = _state(loop), loop._parts.team.export()
    assert set(store.trained) == set(range(8)) and not store.dropped and not store.queue
    assert (state.step, state.trainer_epoch) == (2, 2)
    newest = Volume(site.root).newest()
    assert newest is not None and newest.step == 2
    assert await site.announced() == str(newest.version()) == store.trained[7]
    straight = site.worker.submit(_uninterrupted, site).result()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in straight.items())


def _uninterrupted(site: Site) -> dict[str, torch.Tensor]:
    """Weights of a trainer that saw the same eight samples without dying."""
    learner = Learner(Policy.load(site.base, site.training), site.training)
    for first, lag in ((0, 0), (4, 1)):
        samples = site.samples(8)[first : first + 4]
        learner.step(samples, [float(sample.score) for sample in samples], [lag] * 4)
    return learner.policy.export()


async def test_restart_with_the_lease_still_held_acks_consumed_samples_once(site: Site, store: SampleStore) -> None:
    store.add(site.samples(4))
    async with site.trainer() as loop:
        await loop.start()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(GatewayClient, "ack", _adie)
            with pytest.raises(Killed):
                await loop.one_batch()
    assert set(store.leased) == {0, 1, 2, 3}
    async with site.trainer() as loop:
        await loop.start()
    assert not store.leased and set(store.trained) == {0, 1, 2, 3}


def _volume_knows_8(site: Site) -> None:
    (site.root / "v8.tmp").mkdir()


def _lease_knows_8(site: Site) -> None:
    (site.root / "published.json").write_text('{"version": {"number": 8, "digest8": "00000000"}, "trainer_epoch": 3}')


def _checkpoint_knows_8(site: Site) -> None:
    learner = Learner(Policy.load(site.base, site.training), site.training)
    Checkpoints(site.root / "checkpoints", keep=3).save(learner.snapshot(), Progress(version=8, epoch=3))


@pytest.mark.parametrize(("only", "epoch"), [(_volume_knows_8, 1), (_lease_knows_8, 4), (_checkpoint_knows_8, 4)])
async def test_version_number_is_never_reused(
    site: Site, store: SampleStore, only: Callable[[Site], None], epoch: int
) -> None:
    """Whichever of the three alone remembers the highest number, and the highest epoch."""
    (site.root / "v6.tmp").mkdir()
    only(site)
    store.add(site.samples(4))
    async with site.trainer() as loop:
        await loop.start()
        await loop.one_batch()
    assert (await site.announced()).startswith("9-")
    assert (site.root / "v9").is_dir() and not (site.root / "v6.tmp").exists()
    assert store.epoch == epoch


async def test_start_announces_the_newest_complete_version_again(site: Site, store: SampleStore) -> None:
    store.add(site.samples(4))
    async with site.trainer() as loop:
        await loop.start()
        await loop.one_batch()
    first = await site.announced()
    (site.root / "published.json").unlink()
    async with site.trainer() as loop:
        await loop.start()
        assert _state(loop).version == first
    assert await site.announced() == first


async def test_replaced_trainer_ends_instead_of_training_on(site: Site, store: SampleStore) -> None:
    store.add(site.samples(8))
    async with site.trainer() as old, site.trainer() as new:
        await old.start()
        await new.start()
        await new.one_batch()
        with pytest.raises(StaleEpochError):
            await old.one_batch()


async def test_shutdown_during_a_step_gives_the_samples_back(
    site: Site, store: SampleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(site.samples(4))
    entered, leave = asyncio.Event(), asyncio.Event()

    async def stuck(_: TrainingLoop, __: Any) -> None:
        entered.set()
        await leave.wait()

    async with site.trainer() as loop:
        await loop.start()
        monkeypatch.setattr(TrainingLoop, "_in_worker", stuck)
        batch = asyncio.create_task(loop.one_batch())
        await entered.wait()
        batch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await batch
    assert [sample.id for sample in store.queue] == [0, 1, 2, 3] and not store.leased


@pytest.mark.looptime
async def test_lease_is_extended_while_a_long_step_runs(
    site: Site, store: SampleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(site.samples(4))

    async def slow(_: TrainingLoop, work: Callable[[], Any]) -> Any:
        await asyncio.sleep(300.0)
        return work()

    async with site.trainer() as loop:
        monkeypatch.setattr(TrainingLoop, "_in_worker", _inline)
        await loop.start()
        monkeypatch.setattr(TrainingLoop, "_in_worker", slow)
        await loop.one_batch()
    assert store.calls["extend"] >= 7
    assert set(store.trained) == {0, 1, 2, 3}


async def _inline(_: TrainingLoop, work: Callable[[], Any]) -> Any:
    return work()


def _operator_says(monkeypatch: pytest.MonkeyPatch, state: WeightSyncState) -> None:
    async def weight_sync(_: FileAnnouncer) -> WeightSyncState:
        return state

    monkeypatch.setattr(FileAnnouncer, "weight_sync", weight_sync)


@pytest.mark.parametrize(("bad", "numbers"), [(True, [1, 2]), (False, [1])])
async def test_weights_that_engines_failed_to_take_are_published_anew_once_all_turns_are_stale(
    bad: bool, numbers: list[int], site: Site, store: SampleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.training = site.training.model_copy(update={"stale_filter_steps": 0})
    async with site.trainer() as loop:
        await loop.start()
        store.add(site.samples(4))
        await loop.one_batch()
        _operator_says(monkeypatch, WeightSyncState(bad_versions=(await site.announced(),) if bad else ("9-abcdef01",)))
        for first in (10, 20):
            store.add(site.samples(4, first=first))
            await loop.one_batch()
        assert _state(loop).step == 1
    published = sorted(int(path.name[1:]) for path in site.root.glob("v*"))
    assert published == numbers, "the second is not bad, so it is not replaced again"
    assert set(store.dropped.values()) == {"stale"} and set(store.trained) == {0, 1, 2, 3}
    assert (await site.announced()).startswith(f"{numbers[-1]}-")


async def test_released_versions_are_deleted_after_the_ack(
    site: Site, store: SampleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _operator_says(monkeypatch, WeightSyncState(releasable=(1, 2)))
    store.add(site.samples(8))
    async with site.trainer() as loop:
        await loop.start()
        await loop.one_batch()
        await loop.one_batch()
    newest: Manifest | None = Volume(site.root).newest()
    assert newest is not None and newest.number == 2
    assert not (site.root / "v1").exists()


async def test_steps_since_the_last_checkpoint_are_reported_lost_and_numbers_go_on(
    site: Site, store: SampleStore, caplog: pytest.LogCaptureFixture
) -> None:
    site.training = site.training.model_copy(update={"checkpoint": Checkpoint(every_steps=2, keep=3)})
    store.add(site.samples(16))
    async with site.trainer() as loop:
        await loop.start()
        for _ in range(3):
            await loop.one_batch()
    async with site.trainer() as loop:
        await loop.start()
        assert (_state(loop).step, _state(loop).version) == (2, await site.announced())
        await loop.one_batch()
    assert (await site.announced()).startswith("4-")
    assert "steps since the last checkpoint are lost" in caplog.text
    assert set(store.trained) == set(range(16))


@pytest.mark.parametrize(("before", "after"), [("merged", "adapter"), ("adapter", "merged")])
async def test_change_of_what_is_published_republishes_the_present_policy_in_the_new_kind(
    site: Site, store: SampleStore, before: str, after: str
) -> None:
    def publishing(kind: str) -> PolicyTraining:
        return site.training.model_copy(update={"lora": Lora(rank=4, alpha=8, publish=kind)})

    site.training = publishing(before)
    store.add(site.samples(4))
    async with site.trainer() as loop:
        await loop.start()
        await loop.one_batch()
    site.training = publishing(after)
    async with site.trainer() as loop:
        await loop.start()
    newest = Volume(site.root).newest()
    assert newest is not None and (newest.number, newest.step) == (2, 1)
    assert newest.is_adapter == (after == "adapter")
    assert await site.announced() == str(newest.version())


async def test_trainer_on_a_new_volume_goes_on_where_the_store_left_off(site: Site, store: SampleStore) -> None:
    """Volume and Lease are gone, the store is not: it refuses every epoch up to the one it knows."""
    store.epoch = 7
    store.add(site.samples(4))
    async with site.trainer() as loop:
        await loop.start()
        assert _state(loop).trainer_epoch == 8
        await loop.one_batch()
    assert set(store.trained) == set(range(4))


async def test_start_waits_for_no_gateway_to_learn_its_epoch(site: Site) -> None:
    site.url = "http://127.0.0.1:9"
    async with site.trainer() as loop:
        await loop.start()
        assert _state(loop).trainer_epoch == 1
