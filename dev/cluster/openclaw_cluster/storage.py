"""The default StorageClass and the pure half of its provisioner: which volumes to make and which to remove.

A volume is a host directory open to every user. There is one node, so any access mode is honest.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

STORAGE_CLASS = "hostpath"
PROVISIONER = "openclaw.dev/hostpath"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"


@dataclass(frozen=True)
class Plan:
    create: list[dict[str, Any]]
    """PersistentVolumes; the directory comes first."""
    remove: list[dict[str, Any]]
    """PersistentVolumes whose claim is gone; the directory goes first."""


def storage_class() -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }


def plan(claims: list[dict[str, Any]], volumes: list[dict[str, Any]], root: Path) -> Plan:
    names = {volume["metadata"]["name"] for volume in volumes}
    wanted = [persistent_volume(claim, root) for claim in claims if _is_ours_to_make(claim)]
    return Plan(
        create=[volume for volume in wanted if volume["metadata"]["name"] not in names],
        remove=[volume for volume in volumes if _is_ours_to_remove(volume)],
    )


def persistent_volume(claim: dict[str, Any], root: Path) -> dict[str, Any]:
    metadata, spec = claim["metadata"], claim["spec"]
    name = f"pvc-{metadata['uid']}"
    directory = root / f"{metadata['namespace']}.{metadata['name']}.{metadata['uid'][:8]}"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "accessModes": spec["accessModes"],
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            "hostPath": {"path": str(directory), "type": "Directory"},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": STORAGE_CLASS,
            "volumeMode": "Filesystem",
        },
    }


def directory_of(volume: dict[str, Any], root: Path) -> Path | None:
    """The volume's directory if it lies directly under `root`; anything else is never ours to delete."""
    path = Path(volume["spec"].get("hostPath", {}).get("path", "/"))
    return path if path.parent == root and path.name not in {"", ".", ".."} else None


def _is_ours_to_make(claim: dict[str, Any]) -> bool:
    spec = claim["spec"]
    return (
        spec.get("storageClassName") == STORAGE_CLASS
        and not spec.get("volumeName")
        and claim.get("status", {}).get("phase") == "Pending"
        and "deletionTimestamp" not in claim["metadata"]
        and spec.get("volumeMode", "Filesystem") == "Filesystem"
    )


def _is_ours_to_remove(volume: dict[str, Any]) -> bool:
    return (
        volume["metadata"].get("annotations", {}).get(PROVISIONED_BY) == PROVISIONER
        and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        and volume.get("status", {}).get("phase") == "Released"
        and "deletionTimestamp" not in volume["metadata"]
    )
