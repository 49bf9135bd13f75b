"""The two Leases of a training as values: parse what was read, render what is written.

`<name>-weight-sync`: only the operator writes it. **Submissions are paused while it is held and not expired.** One
annotation beside carries the admin's hold, which is written with the children and not by the sync.
`<name>-published`: only the trainer writes it, the operator reads. Clocks stay outside: the hold's length is counted
by whoever watches, from first sight, on a monotonic clock.
"""

from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from openclaw_core import names
from openclaw_core.versions import VersionFormatError, WeightVersion


class LeaseFormatError(ValueError):
    """A Lease carries a value that no writer of ours produces."""


class Hold(BaseModel):
    """A pause of submissions: who holds it, which epoch, since when and for how long."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    holder: str
    epoch: int = Field(ge=0)
    acquired_at: datetime
    duration_sec: int = Field(ge=1)
    pause_version: str | None = None

    def expired(self, now: datetime) -> bool:
        return (now - self.acquired_at).total_seconds() >= self.duration_sec


class SubmissionHold(BaseModel):
    """The admin's hold of submissions, beside and independent of the weight sync's: until when and why."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    until: AwareDatetime
    reason: str = Field(min_length=1)


class Canary(BaseModel):
    """A version that some engines serve beside the stable one until it is promoted or rolled back."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    version: str
    epoch: int = Field(ge=0)
    """Epoch under which it began: tells one try of a version from the next."""
    share: float = Field(gt=0, lt=1)
    """Share of sessions that it serves, the same from its begin to its end."""
    since: AwareDatetime
    engines: tuple[str, ...] = ()
    """Pod uids of the engines that serve it. They change under a new epoch only."""
    promoted: bool = False
    """Decided: the other engines get it with the next hold."""

    def takes(self, session: str) -> bool:
        """Whether a session belongs to the canary: the same answer in every gateway, as long as this canary lasts."""
        place = blake2b(f"{self.version}\x00{session}".encode(), digest_size=8).digest()
        return int.from_bytes(place, "big") < self.share * 2.0**64


class WeightSyncState(BaseModel):
    """Everything Lease `<name>-weight-sync` says. `hold` None = submissions run."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    hold: Hold | None = None
    claim: str | None = None
    """Who changes engines under `epoch` while submissions run: LoRA adapters are being exchanged."""
    epoch: int = Field(0, ge=0)
    target_version: str | None = None
    serving_version: str | None = None
    bad_versions: tuple[str, ...] = ()
    releasable: tuple[int, ...] = ()
    """Version numbers the trainer may delete from the volume."""
    attempt: int = Field(0, ge=0)
    not_before: datetime | None = None
    held: tuple[tuple[int, float], ...] = ()
    """Seconds of hold that ended in each of the last minutes: (minutes since 1970, seconds), oldest first."""
    sync_request: str | None = None
    """Id of the last one-shot sync asked for by annotation that was taken up."""
    canary: Canary | None = None

    @property
    def taken_by(self) -> str | None:
        """Who changes engines under `epoch`, by a hold or a claim; None while nobody does."""
        return self.hold.holder if self.hold is not None else self.claim

    @property
    def served_epoch(self) -> int:
        """Epoch under which `serving_version` and `canary` were said: the one before that which is taken."""
        return self.epoch if self.taken_by is None else self.epoch - 1


class Published(BaseModel):
    """Newest version the trainer announced; None before the first."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    version: WeightVersion | None = None
    digest: str | None = None
    trainer_epoch: int = Field(0, ge=0)


def parse_time(text: str) -> datetime:
    """MicroTime or Time of Kubernetes → aware datetime; LeaseFormatError names the text."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise LeaseFormatError(f"time {text!r} is not RFC 3339") from error


def format_time(moment: datetime) -> str:
    """Aware datetime → MicroTime of Kubernetes (UTC, 6 decimals, Z)."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_weight_sync(lease: dict[str, Any]) -> WeightSyncState:
    """Raises LeaseFormatError naming the field; an empty Lease is an idle one."""
    spec = lease.get("spec") or {}
    notes = lease.get("metadata", {}).get("annotations") or {}
    try:
        epoch = int(spec.get("leaseTransitions") or 0)
        not_before, canary = notes.get(names.ANNOTATION_NOT_BEFORE), notes.get(names.ANNOTATION_CANARY)
        return WeightSyncState(
            hold=_parse_hold(spec, notes, epoch),
            claim=notes.get(names.ANNOTATION_CLAIM) or None,
            epoch=epoch,
            target_version=notes.get(names.ANNOTATION_TARGET_VERSION) or None,
            serving_version=notes.get(names.ANNOTATION_SERVING_VERSION) or None,
            bad_versions=tuple(_words(notes.get(names.ANNOTATION_BAD_VERSIONS))),
            releasable=tuple(int(word) for word in _words(notes.get(names.ANNOTATION_RELEASABLE))),
            attempt=int(notes.get(names.ANNOTATION_ATTEMPT) or 0),
            not_before=parse_time(not_before) if not_before else None,
            held=tuple(_parse_held(word) for word in _words(notes.get(names.ANNOTATION_HELD))),
            sync_request=notes.get(names.ANNOTATION_SYNC_REQUEST) or None,
            canary=Canary.model_validate_json(canary) if canary else None,
        )
    except (TypeError, ValueError) as error:
        raise LeaseFormatError(f"Lease of the weight sync is garbled: {error}") from error


def _parse_hold(spec: dict[str, Any], notes: dict[str, str], epoch: int) -> Hold | None:
    if not spec.get("holderIdentity"):
        return None
    return Hold(
        holder=spec["holderIdentity"],
        epoch=epoch,
        acquired_at=parse_time(spec["acquireTime"]),
        duration_sec=int(spec["leaseDurationSeconds"]),
        pause_version=notes.get(names.ANNOTATION_PAUSE_VERSION) or None,
    )


def render_weight_sync(state: WeightSyncState) -> dict[str, Any]:
    """`{metadata: {annotations}, spec}` of the Lease: the inverse of `parse_weight_sync`."""
    hold = state.hold
    acquired = format_time(hold.acquired_at) if hold else None
    return {
        "metadata": {
            "annotations": {
                names.ANNOTATION_PAUSE_VERSION: (hold.pause_version or "") if hold else "",
                names.ANNOTATION_CLAIM: state.claim or "",
                names.ANNOTATION_TARGET_VERSION: state.target_version or "",
                names.ANNOTATION_SERVING_VERSION: state.serving_version or "",
                names.ANNOTATION_BAD_VERSIONS: " ".join(state.bad_versions),
                names.ANNOTATION_RELEASABLE: " ".join(str(number) for number in state.releasable),
                names.ANNOTATION_ATTEMPT: str(state.attempt),
                names.ANNOTATION_NOT_BEFORE: format_time(state.not_before) if state.not_before else "",
                names.ANNOTATION_HELD: " ".join(f"{minute}={seconds:.3f}" for minute, seconds in state.held),
                names.ANNOTATION_SYNC_REQUEST: state.sync_request or "",
                names.ANNOTATION_CANARY: state.canary.model_dump_json() if state.canary else "",
            }
        },
        "spec": {
            "holderIdentity": hold.holder if hold else None,
            "acquireTime": acquired,
            "renewTime": acquired,
            "leaseDurationSeconds": hold.duration_sec if hold else None,
            "leaseTransitions": state.epoch,
        },
    }


def parse_submission_hold(lease: dict[str, Any]) -> SubmissionHold | None:
    """The admin's hold in Lease `<name>-weight-sync`, past ones too. Raises LeaseFormatError."""
    note = (lease.get("metadata", {}).get("annotations") or {}).get(names.ANNOTATION_HOLD)
    if not note:
        return None
    try:
        return SubmissionHold.model_validate_json(note)
    except ValidationError as error:
        raise LeaseFormatError(f"annotation {names.ANNOTATION_HOLD} is garbled: {error}") from error


def render_submission_hold(hold: SubmissionHold) -> str:
    """Value of the annotation."""
    return hold.model_dump_json()


def parse_published(lease: dict[str, Any]) -> Published:
    """Raises LeaseFormatError when version or digest is garbled."""
    notes = lease.get("metadata", {}).get("annotations") or {}
    text, digest = notes.get(names.ANNOTATION_VERSION), notes.get(names.ANNOTATION_DIGEST)
    try:
        return Published(
            version=WeightVersion.parse(text) if text else None,
            digest=digest or None,
            trainer_epoch=int(notes.get(names.ANNOTATION_TRAINER_EPOCH) or 0),
        )
    except (VersionFormatError, ValueError) as error:
        raise LeaseFormatError(f"Lease of the published version is garbled: {error}") from error


def render_published(version: WeightVersion, digest: str, trainer_epoch: int) -> dict[str, Any]:
    """Merge patch that announces a version."""
    return {
        "metadata": {
            "annotations": {
                names.ANNOTATION_VERSION: str(version),
                names.ANNOTATION_DIGEST: digest,
                names.ANNOTATION_TRAINER_EPOCH: str(trainer_epoch),
            }
        }
    }


def _parse_held(word: str) -> tuple[int, float]:
    minute, _, seconds = word.partition("=")
    return int(minute), float(seconds)


def _words(text: str | None) -> list[str]:
    return (text or "").split()
