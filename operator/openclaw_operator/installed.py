"""`python -m openclaw_operator.installed URL`: what `helm test` runs. Ends with 0 when the installation works.

It looks as a pod beside the operator would: the operator's Service answers, the leader Lease is held and fresh, and the
API server lists trainings to the operator's account.
"""

import asyncio
import os
import sys
from datetime import UTC, datetime

import aiohttp

from openclaw_core.kube import Kube, KubeError
from openclaw_core.leases import parse_time
from openclaw_operator import kinds
from openclaw_operator.service import LEASE_NAME

_TRIES, _EVERY_SEC = 30, 2.0


async def faults(kube: Kube, url: str, namespaces: list[str], lease_namespace: str) -> list[str]:
    """What does not work, one sentence each."""
    found = []
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz", timeout=_timeout()) as response:
            if response.status != 200:
                found.append(f"{url}/readyz answers {response.status}")
    except (aiohttp.ClientError, TimeoutError) as error:
        found.append(f"{url}/readyz does not answer: {error or type(error).__name__}")
    try:
        lease = await kube.get(kinds.LEASE.path(lease_namespace, LEASE_NAME))
        renewed = lease.get("spec", {}).get("renewTime")
        age = (datetime.now(UTC) - parse_time(renewed)).total_seconds() if renewed else float("inf")
        if not lease["spec"].get("holderIdentity") or age > 30:
            found.append(f"Lease {lease_namespace}/{LEASE_NAME} is not held or not fresh: no operator leads")
        places: list[str | None] = [*namespaces] or [None]
        for namespace in places:
            await kube.list(kinds.TRAINING.collection(namespace), metadata_only=True)
    except (KubeError, aiohttp.ClientError, TimeoutError) as error:
        found.append(f"API server: {error}")
    return found


async def _run(url: str) -> int:
    namespaces = [name for name in os.environ.get("OPENCLAW_WATCH_NAMESPACES", "").split(",") if name]
    found: list[str] = []
    async with Kube.in_cluster() as kube:
        for _ in range(_TRIES):
            found = await faults(kube, url, namespaces, os.environ.get("OPENCLAW_NAMESPACE", "default"))
            if not found:
                break
            await asyncio.sleep(_EVERY_SEC)
    sys.stdout.write("\n".join(found or ["the operator answers, leads, and sees trainings"]) + "\n")
    return 1 if found else 0


def _timeout() -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=5)


if __name__ == "__main__":
    sys.exit(asyncio.run(_run(sys.argv[1])))
