"""A rollout as a whole: real operator, gateway and agents on a real API server, fake engines; users and judge here."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from openclaw_core import kube as paths
from openclaw_core import names, wire
from openclaw_core.leases import WeightSyncState
from tests.faults.fault_bed import ADDRESSES, NAME, NAMESPACE, Bed, bed

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and nft need root"),
]
GATEWAY = f"http://10.213.7.{ADDRESSES['gateway']}"
SERVING = {
    "device": "cpu",
    "replicas": 2,
    "pauseTimeoutSec": 10,
    "rollout": {"canaryReplicas": 1, "minTurns": 20, "maxDurationSec": 300, "maxScoreDrop": 0.5},
}
ROOM = {"device": "cpu", "maxHeadOffPolicyness": 15, "staleFilterSteps": 15, "rolloutBatchSize": 32}


class Users:
    """Hold conversations of two turns, and judge each first turn by the version that answered it."""

    def __init__(self, tokens: dict[str, str], http: aiohttp.ClientSession) -> None:
        self._http, self._token = http, tokens["gateway"]
        self.sessions = 0
        self.changed: list[str] = []
        """Sessions whose second turn another version answered."""

    async def talk(self, likes: Callable[[str], bool]) -> None:
        """Eight conversations."""
        versions = {}
        for _ in range(8):
            self.sessions += 1
            session = f"user-{self.sessions}"
            said = [{"role": "user", "content": f"good day, I am {session}"}]
            first = await self._ask(session, said)
            said += [first["choices"][0]["message"], {"role": "user", "content": "and now?"}]
            second = await self._ask(session, said)
            versions[session] = first["metadata"]["weight_version"]
            if versions[session] not in (second["metadata"]["weight_version"], None):
                self.changed.append(session)
        await self._judge(lambda session: likes(versions.get(session, "")))

    async def _ask(self, session: str, said: list[dict[str, Any]]) -> dict[str, Any]:
        body, headers = {"model": "policy", "messages": said, "max_tokens": 8}, {"X-Session-Id": session}
        async with self._http.post(f"{GATEWAY}:30000/v1/chat/completions", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            reply: dict[str, Any] = await answer.json()
            return reply

    async def versions_known(self) -> set[str]:
        """What the gateway last heard from its engines."""
        headers = {"Authorization": f"Bearer {self._token}"}
        async with self._http.get(f"{GATEWAY}:{names.PORT_GATEWAY_INTERNAL}/state", headers=headers) as answer:
            return {engine["version"] for engine in (await answer.json())["engines"]}

    async def _judge(self, likes: Callable[[str], bool]) -> None:
        lease = wire.LeaseTurns(worker="w", max_turns=64, lease_sec=60)
        while turns := wire.LeasedTurns.model_validate(await self._internal("turns/lease", lease)).turns:
            for turn in turns:
                score = 1 if likes(turn.session) else -1
                await self._internal(
                    "turns/score", wire.ScoreTurn(id=turn.id, lease=turn.lease, score=score, votes=[score])
                )

    async def _internal(self, call: str, body: wire.Message) -> dict[str, Any]:
        url = f"{GATEWAY}:{names.PORT_GATEWAY_INTERNAL}/internal/{call}"
        headers = {"Authorization": f"Bearer {self._token}"}
        async with self._http.post(url, json=body.model_dump(), headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            found: dict[str, Any] = await answer.json()
            return found


async def canary_serves(made: Bed, users: Users) -> str:
    """Version of the canary, once one engine has it, the other does not, and the gateway has seen so."""

    async def found() -> str | None:
        lease = await made.lease()
        if lease is None or lease.canary is None:
            return None
        both = {lease.canary.version, lease.serving_version}
        seen = set(await made.engine_versions()) == both == await users.versions_known()
        return lease.canary.version if seen else None

    version: str = await made.until("a canary serves on one engine", found, 60)
    return version


async def ended(made: Bed, users: Users, likes: Callable[[str], bool]) -> WeightSyncState:
    """A hundred conversations at most (nobody trains their turns), until every engine serves one version again."""
    enough = users.sessions + 100

    async def found() -> WeightSyncState | None:
        lease = await made.lease()
        if lease is not None and lease.canary is not None and not lease.canary.promoted:
            if users.sessions < enough:
                users.changed.clear()
                await users.talk(likes)
                after = await made.lease()
                assert users.changed == [] or after is None or after.canary != lease.canary, "a session changed"
            return None
        whole = lease is not None and lease.hold is None and lease.canary is None
        return lease if whole and set(await made.engine_versions()) == {lease.serving_version} else None

    lease: WeightSyncState = await made.until("the canary is decided upon", found, 200)
    return lease


async def told(made: Bed) -> tuple[list[str], dict[str, Any]]:
    """Reasons of the training's events, and `status.weights.rollout`."""
    events = (await made.api.list(paths.path("v1", "events", NAMESPACE)))["items"]
    training = await made.api.get(paths.path(names.API_VERSION, names.PLURAL, NAMESPACE, name=NAME))
    rollout: dict[str, Any] = training["status"]["weights"]["rollout"]
    return [event["reason"] for event in events], rollout


async def said(made: Bed, state: str) -> dict[str, Any]:
    async def found() -> dict[str, Any] | None:
        rollout = (await told(made))[1]
        return rollout if rollout["state"] == state else None

    rollout: dict[str, Any] = await made.until(f"the status says {state}", found, 30)
    return rollout


async def test_liked_version_is_promoted_and_the_next_disliked_one_is_rolled_back(tmp_path: Path) -> None:
    async with (
        bed(tmp_path, policyServing=SERVING, policyTraining=ROOM) as made,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as http,
    ):
        users = Users(made.tokens, http)
        made.publish()
        first = await canary_serves(made, users)
        assert made.client.refusals == [], "a canary begins without a pause"
        lease = await ended(made, users, lambda version: True)
        assert (lease.serving_version, lease.bad_versions) == (first, ())
        shown = await said(made, "Promoted")
        assert min(shown["canary"]["turns"], shown["stable"]["turns"]) >= 20
        assert (shown["canary"]["version"], shown["canary"]["scoreMean"]) == (first, 1.0)

        refused = len(made.client.refusals)
        made.publish()
        second = await canary_serves(made, users)
        lease = await ended(made, users, lambda version: version != second)
        assert (lease.serving_version, lease.bad_versions) == (first, (second,))
        shown = await said(made, "RolledBack")
        assert shown["canary"]["scoreMean"] < shown["stable"]["scoreMean"]
        assert len(made.client.refusals) == refused, "a rollback needs no pause"
        assert made.client.lost == 0
        reasons = [reason for reason in (await told(made))[0] if reason.startswith("Canary")]
        assert sorted(reasons) == ["CanaryBegan", "CanaryBegan", "CanaryPromoted", "CanaryRolledBack"]
