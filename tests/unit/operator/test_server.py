import aiohttp
from aiohttp.test_utils import TestServer

from openclaw_core.kube import ConflictError, KubeError
from openclaw_core.status import TrainingStatus
from openclaw_operator.metrics import Metrics, kind_of
from openclaw_operator.server import build_app

STATUS = TrainingStatus.model_validate(
    {
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ],
        "weights": {
            "lastSync": {
                "epoch": 4,
                "version": "4-00000004",
                "startedAt": "2026-01-01T00:00:00Z",
                "pauseMs": 250,
                "missingAcks": 1,
                "result": "Succeeded",
            }
        },
    }
)


async def scrape(metrics: Metrics) -> str:
    async with TestServer(build_app(metrics, collect=lambda: None)) as server, aiohttp.ClientSession() as session:
        for path in ("/healthz", "/readyz"):
            async with session.get(server.make_url(path)) as response:
                assert response.status == 200
        async with session.get(server.make_url("/metrics")) as response:
            return await response.text()


async def test_metrics_show_conditions_and_the_last_pause_of_each_training() -> None:
    metrics = Metrics()
    metrics.show("lab", "demo", STATUS)
    text = await scrape(metrics)
    assert 'openclawrl_training_condition{condition="Ready",namespace="lab",training="demo"} 1.0' in text
    assert 'openclawrl_weight_sync_pause_seconds{namespace="lab",training="demo"} 0.25' in text
    assert 'openclawrl_weight_sync_missing_acks{namespace="lab",training="demo"} 1.0' in text
    assert 'openclawrl_weight_sync_epoch{namespace="lab",training="demo"} 4.0' in text


async def test_series_of_a_training_go_with_it() -> None:
    metrics = Metrics()
    metrics.show("lab", "demo", STATUS)
    metrics.clear_trainings()
    assert 'training="demo"' not in await scrape(metrics)


async def test_unknown_condition_is_neither_true_nor_false() -> None:
    metrics = Metrics()
    unknown = STATUS.model_copy(
        update={"conditions": [STATUS.conditions[0].model_copy(update={"status": "Unknown"})]}  # type: ignore[index]
    )
    metrics.show("lab", "demo", unknown, uid="u", model="policy", method="binaryRl")
    text = await scrape(metrics)
    assert 'openclawrl_training_condition{condition="Ready",namespace="lab",training="demo"} -1.0' in text
    assert 'openclawrl_training_info{method="binaryRl",model="policy",namespace="lab"' in text


async def test_failed_reconciles_are_counted_by_kind_of_error() -> None:
    metrics = Metrics()
    metrics.passed(0.02, None)
    metrics.passed(0.02, ConflictError(409, "Conflict", "moved on"))
    metrics.passed(0.02, TimeoutError())
    metrics.passed(0.02, KeyError("x"))
    text = await scrape(metrics)
    assert 'openclawrl_operator_reconciles_total{result="failed"} 3.0' in text
    for kind in ("Conflict", "Timeout", "KeyError"):
        assert f'openclawrl_operator_reconcile_errors_total{{kind="{kind}"}} 1.0' in text
    assert kind_of(KubeError(503, "", "gone")) == "503"


async def test_process_with_a_fault_is_not_alive_but_ready() -> None:
    app = build_app(Metrics(), collect=lambda: None, unhealthy=lambda: "the clock loop has not ticked for 61 s")
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        async with session.get(server.make_url("/healthz")) as response:
            assert (response.status, await response.text()) == (500, "the clock loop has not ticked for 61 s\n")
        async with session.get(server.make_url("/readyz")) as response:
            assert response.status == 200
