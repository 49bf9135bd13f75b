"""How the command reaches a gateway's internal port: through `kubectl port-forward`, or at a URL it is given.

The token comes from the training's Secret `<name>-internal`, or from the environment; it is never an argument.
"""

import base64
import binascii
import contextlib
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO

from openclaw_core import names

_START_SEC = 30.0
_SILENCE_SEC = 300.0
_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")


class AccessError(Exception):
    """The gateway cannot be reached, or refused."""


@dataclass(frozen=True)
class Gateway:
    """Internal port of one gateway."""

    url: str
    token: str = field(repr=False)

    @contextlib.contextmanager
    def open(self, path: str, body: bytes | None = None) -> Iterator[IO[bytes]]:
        """GET, or POST with a JSON body; the answer as a file. Raises AccessError with the gateway's own words."""
        headers = {"Authorization": f"Bearer {self.token}"} | ({"Content-Type": "application/json"} if body else {})
        request = urllib.request.Request(self.url + path, data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=_SILENCE_SEC) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            words = error.read(2000).decode("utf-8", "replace")
            raise AccessError(f"the gateway answered {error.code}: {words}") from error
        except OSError as error:
            raise AccessError(f"the gateway at {self.url} cannot be reached: {error}") from error


def at(url: str) -> Gateway:
    """The gateway at a URL, with the token of the environment."""
    token = os.environ.get(names.ENV_GATEWAY_TOKEN, "").strip()
    if not token:
        raise AccessError(
            f"--url needs the internal token in {names.ENV_GATEWAY_TOKEN}: "
            "kubectl get secret NAME-internal -o jsonpath='{.data.gateway}' | base64 -d"
        )
    return Gateway(url.rstrip("/"), token)


@contextlib.contextmanager
def of_training(training: str, kubectl: Sequence[str]) -> Iterator[Gateway]:
    """The gateway of a training, forwarded for as long as the context lasts. `kubectl`: command and its options."""
    token = _token(training, kubectl)
    target = f"deploy/{names.component(training, names.GATEWAY)}"
    command = [*kubectl, "port-forward", "--address=127.0.0.1", target, f":{names.PORT_GATEWAY_INTERNAL}"]
    with _process(command) as process:
        yield Gateway(f"http://127.0.0.1:{_forwarded_port(process)}", token)


def _token(training: str, kubectl: Sequence[str]) -> str:
    secret = names.internal_secret(training)
    path = f"jsonpath={{.data.{names.SECRET_KEY_GATEWAY}}}"
    _said(
        kubectl, "get", f"{names.PLURAL}.{names.GROUP}", training, "-o", "name"
    )  # else a Secret is said to be missing
    said = _said(kubectl, "get", "secret", secret, "-o", path)
    try:
        token = base64.b64decode(said, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        token = ""
    if not token:
        raise AccessError(f"Secret {secret} has no key {names.SECRET_KEY_GATEWAY}: the operator makes it")
    return token


def _said(kubectl: Sequence[str], *words: str) -> str:
    """What kubectl prints; AccessError with its complaint."""
    try:
        done = subprocess.run([*kubectl, *words], capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        raise AccessError(f"cannot run {kubectl[0]}: {error.strerror}; --url does without it") from error
    if done.returncode != 0:
        raise AccessError(done.stderr.strip())
    return done.stdout


@contextlib.contextmanager
def _process(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(5.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _forwarded_port(process: subprocess.Popen[str]) -> int:
    """The local port kubectl chose; AccessError with its words when it ends, or says nothing, instead."""
    lines: SimpleQueue[str | None] = SimpleQueue()
    Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
    deadline, said = time.monotonic() + _START_SEC, ""
    while (left := deadline - time.monotonic()) > 0:
        try:
            line = lines.get(timeout=left)
        except Empty:
            break
        if line is None:
            break
        if found := _FORWARDING.search(line):
            return int(found.group(1))
        said += line
    raise AccessError(f"kubectl port-forward did not start: {said.strip() or 'no word from it'}")


def _read(output: IO[str] | None, lines: "SimpleQueue[str | None]") -> None:
    with contextlib.suppress(ValueError):  # closed under us at the end
        for line in output or ():
            lines.put(line)
    lines.put(None)
