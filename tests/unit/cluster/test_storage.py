import copy
from pathlib import Path
from typing import Any

from openclaw_cluster import storage

ROOT = Path("/volumes")
CLAIM: dict[str, Any] = {
    "metadata": {"name": "weights", "namespace": "rl", "uid": "12345678-aaaa"},
    "spec": {
        "storageClassName": "hostpath",
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "5Gi"}},
    },
    "status": {"phase": "Pending"},
}


def claim(**changes: Any) -> dict[str, Any]:
    changed = copy.deepcopy(CLAIM)
    for section, values in changes.items():
        changed[section].update(values)
    return changed


def released(**changes: Any) -> dict[str, Any]:
    return {**storage.persistent_volume(CLAIM, ROOT), "status": {"phase": "Released"}, **changes}


def test_pending_claim_gets_a_volume_with_its_size_and_modes() -> None:
    [volume] = storage.plan([CLAIM], [], ROOT).create
    assert volume["metadata"]["name"] == "pvc-12345678-aaaa"
    assert volume["spec"]["accessModes"] == ["ReadWriteMany"]
    assert volume["spec"]["capacity"] == {"storage": "5Gi"}
    assert volume["spec"]["claimRef"]["uid"] == "12345678-aaaa"
    assert volume["spec"]["hostPath"] == {"path": "/volumes/rl.weights.12345678", "type": "Directory"}


def test_claim_with_a_volume_already_made_gets_no_second_one() -> None:
    assert storage.plan([CLAIM], [storage.persistent_volume(CLAIM, ROOT)], ROOT).create == []


def test_claims_of_others_bound_or_going_are_left_alone() -> None:
    others = [
        claim(spec={"storageClassName": "fast"}),
        claim(spec={"volumeName": "named"}),
        claim(status={"phase": "Bound"}),
        claim(metadata={"deletionTimestamp": "now"}),
        claim(spec={"volumeMode": "Block"}),
    ]
    assert storage.plan(others, [], ROOT).create == []


def test_only_our_released_volumes_with_reclaim_delete_are_removed() -> None:
    foreign = released(metadata={"name": "x", "annotations": {}})
    bound = released(status={"phase": "Bound"})
    kept = released()
    kept["spec"] = {**kept["spec"], "persistentVolumeReclaimPolicy": "Retain"}
    assert storage.plan([], [released(), foreign, bound, kept], ROOT).remove == [released()]


def test_directory_outside_the_root_is_never_ours_to_delete() -> None:
    volume = released()
    assert storage.directory_of(volume, ROOT) == ROOT / "rl.weights.12345678"
    for path in ("/etc", "/volumes", "/volumes/..", "/volumes/a/b", "/volumes/../etc"):
        volume["spec"] = {"hostPath": {"path": path}}
        assert storage.directory_of(volume, ROOT) is None
    volume["spec"] = {"nfs": {}}
    assert storage.directory_of(volume, ROOT) is None
