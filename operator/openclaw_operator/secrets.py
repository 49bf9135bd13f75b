"""Looks at the Secrets a training names: present, key present, not empty, no placeholder. Never keeps a value.

The operator may only `get` Secrets by name, so it asks again every 15 s (with jitter, `CHECK_EVERY_SEC`): for the
metadata only, and for the object itself when its resourceVersion moved. What stays in memory is a verdict per key.
"""

import asyncio
import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from openclaw_core import placeholders
from openclaw_core.config.base import SecretKeyRef
from openclaw_core.kube import Kube, KubeError, NotFoundError
from openclaw_operator import kinds
from openclaw_operator.needs import ALL_ENTRIES, SecretNeed
from openclaw_operator.reasons import Reason

CHECK_EVERY_SEC = 15.0


@dataclass(frozen=True)
class Problem:
    """A reference that does not resolve. `components` are those that wait for it."""

    reason: Reason
    message: str
    components: frozenset[str]


@dataclass(frozen=True)
class Resolution:
    """Verdict over every need of a training."""

    problems: tuple[Problem, ...] = ()
    hashes: dict[str, str] = field(default_factory=dict)
    """By component: hash over name, uid and resourceVersion of every Secret it uses."""

    def blocked(self) -> frozenset[str]:
        return frozenset(component for problem in self.problems for component in problem.components)


@dataclass
class _Seen:
    """A Secret as last read: its identity, and the verdict on each key (None = usable)."""

    identity: tuple[str, str]
    verdicts: dict[str, Reason | None]


class Secrets:
    """Reads Secrets by name for any number of trainings."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._seen: dict[tuple[str, str], _Seen] = {}

    async def resolve(self, namespace: str, needs: Sequence[SecretNeed]) -> Resolution:
        """Look at every Secret named by `needs` now."""
        secret_names = sorted({need.ref.name for need in needs})
        looked = await asyncio.gather(*(self._look(namespace, name) for name in secret_names))
        found = dict(zip(secret_names, looked, strict=True))
        return Resolution(tuple(_problems(namespace, needs, found)), _hashes(needs, found))

    async def _look(self, namespace: str, name: str) -> _Seen | Reason:
        path = kinds.SECRET.path(namespace, name)
        try:
            metadata = (await self._kube.get(path, metadata_only=True))["metadata"]
            identity = (metadata["uid"], metadata["resourceVersion"])
            known = self._seen.get((namespace, name))
            if known is None or known.identity != identity:
                known = _judge(await self._kube.get(path))
                self._seen[namespace, name] = known
            return known
        except NotFoundError:
            self._seen.pop((namespace, name), None)
            return Reason.SECRET_MISSING
        except KubeError as error:
            if error.status == 403:
                return Reason.SECRET_FORBIDDEN
            raise


def _judge(secret: dict[str, Any]) -> _Seen:
    metadata = secret["metadata"]
    verdicts = {key: _verdict(value) for key, value in (secret.get("data") or {}).items()}
    return _Seen((metadata["uid"], metadata["resourceVersion"]), verdicts)


def _verdict(encoded: str) -> Reason | None:
    fault = placeholders.fault(base64.b64decode(encoded).decode(errors="replace"))
    if fault is None:
        return None
    return Reason.KEY_EMPTY if fault == placeholders.EMPTY else Reason.KEY_PLACEHOLDER


def _problems(namespace: str, needs: Iterable[SecretNeed], found: dict[str, _Seen | Reason]) -> list[Problem]:
    waiting: dict[tuple[str, SecretKeyRef], set[str]] = {}
    for need in needs:
        waiting.setdefault((need.field, need.ref), set()).add(need.component)
    problems = []
    for (path, ref), components in waiting.items():
        seen = found[ref.name]
        reason = seen if isinstance(seen, Reason) else _reason(seen, ref)
        if reason is not None:
            problems.append(Problem(reason, _sentence(namespace, path, ref, reason), frozenset(components)))
    return problems


def _reason(seen: _Seen, ref: SecretKeyRef) -> Reason | None:
    """Of a whole Secret one usable entry is enough: the process leaves the others out and says so."""
    if ref.key != ALL_ENTRIES:
        return seen.verdicts.get(ref.key, Reason.KEY_MISSING)
    verdicts = list(seen.verdicts.values())
    return None if None in verdicts else next(iter(verdicts), Reason.KEY_MISSING)


def _sentence(namespace: str, path: str, ref: SecretKeyRef, reason: Reason) -> str:
    key = f"key {ref.key!r}" if ref.key else "usable entry"
    create = f"kubectl -n {namespace} create secret generic {ref.name} --from-literal={ref.key or 'alice'}=…"
    faults = {
        Reason.SECRET_MISSING: f"Secret {ref.name!r} does not exist; create it, or name another: {create}",
        Reason.SECRET_FORBIDDEN: f"the operator may not read Secret {ref.name!r}; grant it `get` on secrets",
        Reason.KEY_MISSING: f"Secret {ref.name!r} has no {key}; add it, or name the key it has",
        Reason.KEY_EMPTY: f"{key} of Secret {ref.name!r} is empty; put the key into it",
        Reason.KEY_PLACEHOLDER: f"{key} of Secret {ref.name!r} holds a placeholder; put the real key into it",
    }
    return f"{path}: {faults[reason]}"


def _hashes(needs: Iterable[SecretNeed], found: dict[str, _Seen | Reason]) -> dict[str, str]:
    used: dict[str, set[str]] = {}
    for need in needs:
        if need.ref.key == ALL_ENTRIES:
            continue  # mounted: the process sees the change itself
        used.setdefault(need.component, set()).add(need.ref.name)
    hashes = {}
    for component, secret_names in used.items():
        seen = {name: found[name] for name in sorted(secret_names)}
        material = repr([(name, *item.identity) for name, item in seen.items() if isinstance(item, _Seen)])
        hashes[component] = hashlib.sha256(material.encode()).hexdigest()[:12]
    return hashes
