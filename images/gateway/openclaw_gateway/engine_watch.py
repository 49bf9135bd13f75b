"""Watches the EndpointSlices of Service `<name>-engine`: every engine pod's address, ready or not, unless it ends.

Readiness is for probes to tell: a pod that is not ready for Kubernetes may still answer, and one that is may be paused.
A pod that is being deleted finishes its streams but gets no new turn.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from typing import Any

import aiohttp

from openclaw_core import names
from openclaw_core.kube import Kube, KubeError, path

_log = logging.getLogger(__name__)
_FIRST_BACKOFF_SEC, _LONGEST_BACKOFF_SEC = 0.1, 10.0
PORT_NAME = "sglang"


class EngineWatch:
    """`on_change` gets all addresses (host:port) after each change."""

    def __init__(
        self, kube: Kube, on_change: Callable[[Collection[str]], None], *, namespace: str, training: str
    ) -> None:
        self._kube, self._on_change = kube, on_change
        self._selector = f"kubernetes.io/service-name={names.component(training, names.ENGINE)}"
        self._collection = path("discovery.k8s.io/v1", "endpointslices", namespace)
        self._slices: dict[str, frozenset[str]] = {}

    async def run(self) -> None:
        backoff = _FIRST_BACKOFF_SEC
        while True:
            try:
                await self._list_and_watch()
                backoff = _FIRST_BACKOFF_SEC
            except (KubeError, aiohttp.ClientError, TimeoutError) as error:
                _log.warning("the watch of the engines broke: %s", error)
                backoff = min(2 * backoff, _LONGEST_BACKOFF_SEC)
            # Also after a watch that just ended: a server that ends each at once must not be hammered.
            await asyncio.sleep(backoff * random.uniform(0.5, 1.0))

    async def _list_and_watch(self) -> None:
        listed = await self._kube.list(self._collection, label_selector=self._selector)
        self._slices = {item["metadata"]["name"]: addresses(item) for item in listed["items"]}
        self._tell()
        async for kind, item in self._kube.watch(
            self._collection,
            resource_version=listed["metadata"]["resourceVersion"],
            label_selector=self._selector,
        ):
            self._apply(kind, item)

    def _apply(self, kind: str, item: dict[str, Any]) -> None:
        if kind in ("ADDED", "MODIFIED"):
            self._slices[item["metadata"]["name"]] = addresses(item)
        elif kind == "DELETED":
            self._slices.pop(item["metadata"]["name"], None)
        else:
            return
        self._tell()

    def _tell(self) -> None:
        self._on_change(frozenset().union(*self._slices.values()))


def addresses(endpoint_slice: dict[str, Any]) -> frozenset[str]:
    """`host:port` of every endpoint of a slice that is not ending; IPv6 in brackets."""
    ports = endpoint_slice.get("ports") or []
    port = next((p["port"] for p in ports if p.get("name") == PORT_NAME and p.get("port")), names.PORT_SGLANG)
    staying = [
        endpoint
        for endpoint in endpoint_slice.get("endpoints") or []
        if not (endpoint.get("conditions") or {}).get("terminating")
    ]
    hosts = (host for endpoint in staying for host in endpoint.get("addresses") or [])
    return frozenset(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts)
