"""The published Lease is written with what was read, so a replaced trainer cannot speak any more."""

from typing import Any

import pytest

from openclaw_core import kube, leases, names
from openclaw_core.versions import WeightVersion
from openclaw_trainer.announce import AnnounceError, FileAnnouncer, LeaseAnnouncer
from openclaw_trainer.volume import StaleEpochError

VERSION, DIGEST = WeightVersion.of(4, "ab" * 32), "ab" * 32


class ApiServer:
    """Two Leases behind optimistic concurrency, with the two verbs the trainer's Role grants."""

    def __init__(self) -> None:
        self.published: dict[str, Any] = {"metadata": {"resourceVersion": "1", "annotations": {}}}
        self.weight_sync: dict[str, Any] | None = None
        self.conflicts = 0
        self.before_patch: Any = lambda: None

    async def get(self, path: str) -> dict[str, Any]:
        if path.endswith("-published"):
            return {"metadata": dict(self.published["metadata"])}
        if self.weight_sync is None:
            raise kube.KubeError(403, "Forbidden", "leases is forbidden")
        return self.weight_sync

    async def merge_patch(self, path: str, body: dict[str, Any], *, field_manager: str) -> dict[str, Any]:
        assert path.endswith("/namespaces/space/leases/demo-published") and field_manager == "openclaw-trainer"
        self.before_patch()
        current = self.published["metadata"]
        if body["metadata"]["resourceVersion"] != current["resourceVersion"]:
            self.conflicts += 1
            raise kube.ConflictError(409, "Conflict", "the object has been modified")
        self.write(body["metadata"]["annotations"])
        return self.published

    def write(self, annotations: dict[str, str]) -> None:
        current = self.published["metadata"]
        current["annotations"] = current["annotations"] | annotations
        current["resourceVersion"] = str(int(current["resourceVersion"]) + 1)


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
def announcer(server: ApiServer) -> LeaseAnnouncer:
    return LeaseAnnouncer(server, "demo", "space")  # type: ignore[arg-type]  # the two verbs it needs


async def test_announcement_is_what_the_operator_parses(server: ApiServer, announcer: LeaseAnnouncer) -> None:
    await announcer.claim(2)
    assert await announcer.read() == leases.Published(trainer_epoch=2)
    await announcer.announce(VERSION, DIGEST, 2)
    assert leases.parse_published(server.published) == leases.Published(version=VERSION, digest=DIGEST, trainer_epoch=2)


async def test_announcement_of_a_replaced_trainer_is_refused(announcer: LeaseAnnouncer) -> None:
    await announcer.claim(7)
    with pytest.raises(StaleEpochError, match="epoch 7"):
        await announcer.announce(VERSION, DIGEST, 6)
    assert (await announcer.read()).version is None


@pytest.mark.looptime
async def test_trainer_replaced_between_read_and_write_is_refused(server: ApiServer, announcer: LeaseAnnouncer) -> None:
    def replace_once() -> None:
        server.before_patch = lambda: None
        server.write({names.ANNOTATION_TRAINER_EPOCH: "9"})

    server.before_patch = replace_once
    with pytest.raises(StaleEpochError):
        await announcer.announce(VERSION, DIGEST, 3)
    assert server.conflicts == 1 and (await announcer.read()).version is None


@pytest.mark.looptime
async def test_lease_that_keeps_changing_ends_in_an_error(server: ApiServer, announcer: LeaseAnnouncer) -> None:
    server.before_patch = lambda: server.write({"other": "label"})
    with pytest.raises(AnnounceError):
        await announcer.announce(VERSION, DIGEST, 3)


async def test_operators_word_is_read_and_unreadable_says_nothing(server: ApiServer, announcer: LeaseAnnouncer) -> None:
    assert await announcer.weight_sync() == leases.WeightSyncState()
    notes = {names.ANNOTATION_RELEASABLE: "1 2", names.ANNOTATION_BAD_VERSIONS: "3-abcdef01"}
    server.weight_sync = {"metadata": {"annotations": notes}}
    word = await announcer.weight_sync()
    assert (word.releasable, word.bad_versions) == ((1, 2), ("3-abcdef01",))
    server.weight_sync = {"metadata": {"annotations": {names.ANNOTATION_RELEASABLE: "one"}}}
    assert await announcer.weight_sync() == leases.WeightSyncState()


async def test_file_announcer_keeps_version_and_epoch(tmp_path: Any) -> None:
    announcer = FileAnnouncer(tmp_path / "published.json")
    await announcer.claim(1)
    await announcer.announce(VERSION, DIGEST, 1)
    await announcer.claim(2)
    assert await FileAnnouncer(tmp_path / "published.json").read() == leases.Published(
        version=VERSION, digest=DIGEST, trainer_epoch=2
    )
    with pytest.raises(StaleEpochError):
        await announcer.announce(VERSION, DIGEST, 1)
