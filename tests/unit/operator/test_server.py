import aiohttp
from aiohttp.test_utils import TestServer

from openclaw_core.status import TrainingStatus
from openclaw_operator.server import Metrics, build_app

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
    assert 'openclawrl_weight_sync_epoch{namespace="lab",training="demo"} 4.0' in text


async def test_series_of_a_training_go_with_it() -> None:
    metrics = Metrics()
    metrics.show("lab", "demo", STATUS)
    metrics.clear_trainings()
    assert 'training="demo"' not in await scrape(metrics)
