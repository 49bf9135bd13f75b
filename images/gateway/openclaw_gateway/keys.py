"""The clients' keys: one from the environment, any number by name from a mounted Secret that is read as it changes.

    loop: every 5 s ──▶ the directory differs? ──▶ new keys count, removed ones no longer
The kubelet brings a changed Secret into the pod within about a minute; nothing is restarted and nobody is cut off.
"""

import asyncio
import hmac
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from openclaw_core import placeholders
from openclaw_core.config.components import ConfigError
from openclaw_gateway import errors
from openclaw_gateway.auth import fingerprint, given_keys

_log = logging.getLogger(__name__)
LOOK_EVERY_SEC = 5.0
DEFAULT = "default"
"""Name of the key from the environment."""
ANYBODY = "anonymous"
"""Name of everybody where no key is asked for."""


class Caller(msgspec.Struct, frozen=True):
    """Who asks. `owner` is what sessions are kept under: two callers never share one."""

    name: str
    owner: str


@dataclass
class Keys:
    """`single` is the key from the environment, `directory` the mounted Secret; neither: no authentication."""

    single: str | None = field(default=None, repr=False)
    directory: Path | None = None
    _named: dict[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.directory is not None:
            self._named = read(self.directory)
            if not self._named:
                raise ConfigError(f"{self.directory} holds no client key: put one into the Secret")

    @property
    def asked_for(self) -> bool:
        return self.single is not None or self.directory is not None

    def caller(self, headers: Mapping[str, str]) -> Caller:
        """Raises ApiError 401 when a key is asked for and none of those sent is right.

        Without authentication whatever key a client sends still tells its sessions from others'. With named keys the
        name does: a client that was given a new key goes on with its sessions.
        """
        given = given_keys(headers)
        if not self.asked_for:
            return Caller(ANYBODY, fingerprint(given[0] if given else ""))
        if not given:
            raise errors.unauthorized("missing bearer token")
        found = [caller for key in given for caller in self._matching(key)]
        if not found:
            raise errors.unauthorized("invalid api key")
        return found[0]

    def _matching(self, given: str) -> list[Caller]:
        """Every key is compared to its end, so that time tells nothing of how near a guess is."""
        token = given.encode()
        found = []
        for name, key in self._named.items():
            if hmac.compare_digest(token, key.encode()):
                found.append(Caller(name, fingerprint(f"client {name}")))
        if self.single is not None and hmac.compare_digest(token, self.single.encode()):
            found.append(Caller(DEFAULT, fingerprint(self.single)))
        return found

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_SEC)
            self.look()

    def look(self) -> None:
        """Take in what the directory holds now. One that cannot be read leaves the keys as they were."""
        if self.directory is None:
            return
        try:
            now = read(self.directory)
        except OSError as error:
            _log.warning("the clients' keys cannot be read: %s", error)
            return
        if now != self._named:
            gone, new = sorted(self._named.keys() - now.keys()), sorted(now.keys() - self._named.keys())
            changed = sorted(name for name in now.keys() & self._named.keys() if now[name] != self._named[name])
            _log.info("client keys: new %s, changed %s, gone %s", new, changed, gone)
            self._named = now


def read(directory: Path) -> dict[str, str]:
    """Keys by name. The kubelet's own entries begin with two dots; an entry nobody can mean is left out."""
    found: dict[str, str] = {}
    for path in sorted(directory.iterdir()):
        if path.name.startswith("..") or not path.is_file():
            continue
        text = path.read_text(errors="replace").strip()
        if fault := placeholders.fault(text):
            _log.warning("client key %s is %s and does not count", path.name, fault)
        else:
            found[path.name] = text
    return found
