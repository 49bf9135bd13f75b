"""The environment over HTTP: health, what the users saw, and their switch."""

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from openclaw_core.wire import ClientReport
from openclaw_environment.journal import Journal
from openclaw_environment.users import Users


class Environment:
    """What the routes act on."""

    def __init__(self, users: Users, journal: Journal) -> None:
        self.users, self._journal = users, journal
        self.registry = CollectorRegistry()
        self.registry.register(_ReportCollector(self))

    def report(self) -> ClientReport:
        return self._journal.report(stopped=self.users.stopped)


class _ReportCollector(Collector):
    """The report as metrics, read when scraped."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def collect(self) -> list[Metric]:
        report = self._environment.report()
        counts = {
            "sessions": report.sessions,
            "turns_ok": report.turns_ok,
            "failed": report.failed,
            "preferred": report.preferred,
            "judged": report.judged,
        }
        refused = CounterMetricFamily("openclawrl_environment_refused", "Refusals by status:code", labels=["reason"])
        for reason, count in report.refused_total.items():
            refused.add_metric([reason], count)
        return [
            *(CounterMetricFamily(f"openclawrl_environment_{name}", name, value) for name, value in counts.items()),
            refused,
            GaugeMetricFamily("openclawrl_environment_in_flight", "Open sessions", report.in_flight),
        ]


_ENVIRONMENT: web.AppKey[Environment] = web.AppKey("environment", Environment)


def build_app(environment: Environment) -> web.Application:
    app = web.Application()
    app[_ENVIRONMENT] = environment
    app.add_routes(
        [
            web.get("/healthz", _ok),
            web.get("/readyz", _ok),
            web.get("/metrics", _metrics),
            web.get("/report", _report),
            web.post("/stop", _stop),
            web.post("/start", _start),
        ]
    )
    return app


async def _ok(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _metrics(request: web.Request) -> web.Response:
    return web.Response(body=generate_latest(request.app[_ENVIRONMENT].registry), content_type="text/plain")


async def _report(request: web.Request) -> web.Response:
    return web.Response(text=request.app[_ENVIRONMENT].report().model_dump_json(), content_type="application/json")


async def _stop(request: web.Request) -> web.Response:
    request.app[_ENVIRONMENT].users.stop()
    return await _report(request)


async def _start(request: web.Request) -> web.Response:
    request.app[_ENVIRONMENT].users.start()
    return await _report(request)
