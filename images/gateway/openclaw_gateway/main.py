"""Puts the gateway together and runs it: two servers, a writer thread and the loops, in one process.

```
 loops: public server · internal server · store writer (watched) · probes · exchanges · client keys ·
        upkeep every 2 s
        in a cluster also: Lease watch · EndpointSlice watch
```
Each of them that ends takes the process down, and Kubernetes starts it again.
"""

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Collection
from dataclasses import dataclass

import aiohttp

from openclaw_core import names, tasks
from openclaw_core.config.components import ConfigError, GatewayConfig
from openclaw_core.kube import Kube
from openclaw_gateway import engine_http, errors, internal_api, serving, upstream
from openclaw_gateway.chat import Chat, ChatSettings
from openclaw_gateway.engine_watch import EngineWatch
from openclaw_gateway.exchanges import Exchanges, Limits
from openclaw_gateway.fleet import Fleet
from openclaw_gateway.gate import Gate
from openclaw_gateway.keys import Keys
from openclaw_gateway.lease_watch import LeaseWatch
from openclaw_gateway.metrics import Metrics
from openclaw_gateway.probes import Probes
from openclaw_gateway.public_app import PublicApp
from openclaw_gateway.settings import Settings
from openclaw_gateway.store.databases import Database, Postgres, PostgresUrlError, Sqlite
from openclaw_gateway.store.store import FILE_NAME, Store
from openclaw_gateway.store.transaction import Policy
from openclaw_gateway.store.writer import StoreUnavailableError

_log = logging.getLogger(__name__)
UPKEEP_EVERY_SEC = 2.0
_FIRST_SIGHT_SEC = 5.0


@dataclass
class Gateway:
    """The parts of one gateway, wired; tests use them without a server."""

    public: PublicApp
    internal: object
    store: Store
    gate: Gate
    fleet: Fleet
    probes: Probes
    metrics: Metrics
    exchanges: Exchanges
    keys: Keys
    needs_store: bool
    """Main turns are refused while the store is down."""
    stopping: bool = False
    store_up: bool = True
    lease_watch: LeaseWatch | None = None
    started_at: float = 0.0

    def is_ready(self, now: float) -> bool:
        """Turns are taken, and a hold that is on is known; without the API server only the turns count."""
        watch = self.lease_watch
        return (
            (self.store_up or not self.needs_store)
            and not self.stopping
            and (watch is None or watch.seen_once or now - self.started_at > _FIRST_SIGHT_SEC)
        )

    def stop(self) -> None:
        """Unready from now on; long polls answer with what there is."""
        self.stopping = True
        self.store.end_waits()

    def engines_changed(self, addresses: Collection[str]) -> None:
        self.fleet.set_addresses(addresses)
        self.probes.wake()


@contextlib.asynccontextmanager
async def gateway(config: GatewayConfig, settings: Settings) -> AsyncIterator[Gateway]:
    """Open the store, wire the parts, close everything at the end. Loops are the caller's."""
    now = asyncio.get_running_loop().time
    named = config.gateway.api_keys_secret_ref is not None
    keys = Keys(settings.api_key, settings.client_keys_dir if named else None)
    incarnation = f"{settings.pod_uid or settings.pod_name[:50]}-{uuid.uuid4().hex[:8]}"
    store = await Store.open(_database(config, settings), Policy.of(config), incarnation)
    fleet, metrics = Fleet(config.gateway.max_in_flight_per_engine), Metrics()
    fleet.set_addresses(settings.engines)
    pool = engine_http.Pool(now)
    async with aiohttp.ClientSession() as http:
        gate = Gate(holds_requests=not config.weight_sync_pause, now=now)
        probes = Probes(fleet, http, is_paused=gate.is_on, now=now, adapters=config.adapters)
        gate.on_change(probes.distrust)
        engines = upstream.Upstream(pool, gate, probes, gate.pause.version_for, now, adapters=config.adapters)
        exchanges = Exchanges(_limits(config), paused=gate.is_on, clock=now)
        chat = Chat(_chat_settings(config), keys, store, gate, engines, probes, metrics, exchanges)
        parts = Gateway(
            public=PublicApp(
                chat,
                engines,
                served_name=config.served_name,
                keys=keys,
                created=int(time.time()),
                ready=lambda: parts.is_ready(now()),
                exchanges=exchanges,
                metrics=metrics,
                render_metrics=lambda: _scrape(parts),
            ),
            internal=internal_api.build(
                store, gate, fleet, metrics, token=settings.token, pod_uid=settings.pod_uid, now=now
            ),
            store=store,
            gate=gate,
            fleet=fleet,
            probes=probes,
            metrics=metrics,
            exchanges=exchanges,
            keys=keys,
            needs_store=config.gateway.on_store_down == "reject",
            started_at=now(),
        )
        try:
            yield parts
        finally:
            pool.close()
            await store.close()


async def run(config: GatewayConfig, settings: Settings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set; raises when a loop dies."""
    async with contextlib.AsyncExitStack() as stack:
        parts = await stack.enter_async_context(gateway(config, settings))
        grace, drained = serving.Grace(), asyncio.Event()
        loops: dict[str, Awaitable[object]] = {
            "servers": serving.serve(
                serving.server(parts.public, config.host, config.port, drain_sec=grace.drain),
                serving.server(parts.internal, config.host, settings.internal_port),
                stop,
                drained,
                grace=grace,
                on_stop=parts.stop,
                cut_off=lambda: parts.exchanges.end_all(errors.stopping),
            ),
            "store writer": parts.store.watch(),
            "probes": parts.probes.run(),
            "exchanges": parts.exchanges.watch(),
            "client keys": parts.keys.watch(),
            "upkeep": upkeep(parts),
        }
        if settings.kubernetes:
            kube = await stack.enter_async_context(Kube.in_cluster())
            where = {"namespace": config.namespace, "training": config.training}
            parts.lease_watch = LeaseWatch(kube, parts.gate, **where)
            loops["Lease watch"] = parts.lease_watch.run()
            if not settings.engines:
                loops["engine watch"] = EngineWatch(kube, parts.engines_changed, **where).run()
        _log.info("the gateway serves %s on port %d", config.served_name, config.port)
        await tasks.run_all(loops, stop=drained)


async def upkeep(parts: Gateway) -> None:
    """Idle sessions, leases, heartbeats. A store that fails makes a gateway that needs it unready until it works."""
    while True:
        try:
            await parts.store.upkeep()
            parts.store_up = True
        except StoreUnavailableError as error:
            _log.error("the experience store failed: %s", error)
            parts.store_up = False
        await asyncio.sleep(UPKEEP_EVERY_SEC)


def _chat_settings(config: GatewayConfig) -> ChatSettings:
    return ChatSettings(
        served_name=config.served_name,
        default_main=config.gateway.default_turn_type == "main",
        blocks_when_full=config.queue.drop_policy == "block",
        block_timeout_sec=config.block_timeout_sec,
        serve_when_store_down=config.gateway.on_store_down == "serveUntracked",
    )


def _limits(config: GatewayConfig) -> Limits:
    """Side turns and refusals come on top of the turns that may generate at once."""
    return Limits(
        first_token_sec=config.gateway.first_token_timeout_sec,
        idle_sec=config.gateway.idle_timeout_sec,
        most=2 * config.gateway.max_concurrent + 64,
    )


def _database(config: GatewayConfig, settings: Settings) -> Database:
    if config.queue.store == "sqlite":
        return Sqlite(settings.experience_dir / FILE_NAME)
    variable = f"environment variable {names.ENV_POSTGRES_URL} (queue.postgres.urlSecretRef)"
    if settings.postgres_url is None:
        raise ConfigError(f"{variable} is empty: queue.store postgres needs the database's URL")
    try:
        return Postgres(settings.postgres_url, namespace=config.namespace, training=config.training)
    except PostgresUrlError as error:
        raise ConfigError(f"{variable} {error}") from None


async def _scrape(parts: Gateway) -> bytes:
    """Metrics, without the store's numbers while it fails."""
    try:
        stats = await parts.store.stats(parts.metrics.refusals)
    except StoreUnavailableError:
        stats = None
    return parts.metrics.render(stats, paused=parts.gate.is_on(), held_sec=parts.gate.held_sec())
