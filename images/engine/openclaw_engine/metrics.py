"""Prometheus metrics of the sync agent. SGLang serves its own on its port."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """One registry per process (per app in tests)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.syncs = Counter(
            "openclawrl_engine_syncs",
            "Weight syncs by result (ok, failed, refused).",
            ["result"],
            registry=self.registry,
        )
        self.pause = Histogram(
            "openclawrl_engine_pause_seconds", "SGLang's pause per sync.", buckets=_SECONDS, registry=self.registry
        )
        self.update = Histogram(
            "openclawrl_engine_update_seconds",
            "SGLang's own update per sync.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.prepare = Histogram(
            "openclawrl_engine_prepare_seconds",
            "Manifest check and reading ahead per prepare.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.staging_failures = Counter(
            "openclawrl_engine_staging_failures",
            "Versions that could not be read ahead; they were read in the pause instead.",
            registry=self.registry,
        )
        self.transfer_failures = Counter(
            "openclawrl_engine_transfer_failures",
            "Transfers from the trainer that failed; the volume was read instead.",
            registry=self.registry,
        )
        self.version = Gauge("openclawrl_engine_version", "Number of the version loaded.", registry=self.registry)
        self.ready = Gauge("openclawrl_engine_ready", "1 when a version is loaded.", registry=self.registry)
        self.resumed = Counter(
            "openclawrl_engine_stray_pauses", "Pauses found outside a sync and ended.", registry=self.registry
        )
