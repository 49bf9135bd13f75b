"""A gateway that restarts is waited for within bounds; one that refuses is believed."""

import pytest

from openclaw_core.wire import AckSamples, LeaseSamples
from openclaw_trainer.gateway_client import GatewayClient, GatewayError
from openclaw_trainer.volume import StaleEpochError
from tests.fakes.sample_store import TOKEN, SampleStore, serving

LEASE = LeaseSamples(trainer_epoch=1, batch=4, min_batch=1, batch_wait_sec=0, lease_sec=60)
ACK = AckSamples(trainer_epoch=1, ids=[1], version="1-00000000")


@pytest.mark.looptime
async def test_call_survives_a_gateway_that_restarts() -> None:
    store = SampleStore()
    store.fail_next["ack"] = 3
    async with serving(store) as url, GatewayClient(url, TOKEN) as client:
        assert (await client.ack(ACK)).ids == [1]
    assert store.calls["ack"] == 4


@pytest.mark.looptime
async def test_patience_with_an_absent_gateway_ends() -> None:
    store = SampleStore()
    store.fail_next["ack"] = 10_000
    async with serving(store) as url, GatewayClient(url, TOKEN, patience_sec=60.0) as client:
        with pytest.raises(GatewayError, match="60 s"):
            await client.ack(ACK)
    assert 10 < store.calls["ack"] < 30, "backoff between the tries"


@pytest.mark.looptime
async def test_older_trainer_epoch_ends_at_once() -> None:
    store = SampleStore()
    store.epoch = 2
    async with serving(store) as url, GatewayClient(url, TOKEN) as client:
        with pytest.raises(StaleEpochError, match="older trainer epoch"):
            await client.lease(LEASE)
    assert store.calls["lease"] == 1


@pytest.mark.looptime
async def test_wrong_token_is_not_retried() -> None:
    store = SampleStore()
    async with serving(store) as url, GatewayClient(url, "other") as client:
        with pytest.raises(GatewayError, match="401"):
            await client.lease(LEASE)
    assert store.calls["lease"] == 1
