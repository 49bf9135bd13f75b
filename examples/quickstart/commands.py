"""kubectl and helm as child processes, and where to find them and the cluster.

Nothing is read from a component here. A key never stands on a command line: manifests go through stdin.
"""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]


class StepError(Exception):
    """A step of the demo failed; the message says what to do or shows the command's own words."""


@dataclass(frozen=True)
class Cluster:
    """Which cluster: an existing context, or the embedded one's kubeconfig."""

    kubectl: str
    helm: str
    cache: Path
    kubeconfig: Path | None
    context: str | None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Cluster":
        home = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache"
        cache, context = Path(home) / "openclaw-training", environ.get("KUBECONTEXT") or None
        tools = cache / "cluster" / "bin"
        beside = Path(sys.executable).parent / "kubectl"
        return cls(
            kubectl=str(beside) if beside.exists() else shutil.which("kubectl") or "kubectl",
            helm=str(tools / "helm") if context is None else shutil.which("helm") or str(tools / "helm"),
            cache=cache,
            kubeconfig=None if context else cache / "cluster" / "kubeconfig",
            context=context,
        )

    def environment(self) -> dict[str, str]:
        extra = {"KUBECONFIG": str(self.kubeconfig)} if self.kubeconfig else {}
        return dict(os.environ) | extra

    def kubectl_line(self, *arguments: str) -> list[str]:
        return [self.kubectl, *(["--context", self.context] if self.context else []), *arguments]

    def parsed_kubeconfig(self) -> dict[str, Any]:
        """The kubeconfig kubectl itself would use, with its data inline."""
        file = self.kubeconfig or Path(
            os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or Path.home() / ".kube" / "config"
        )
        parsed: dict[str, Any] = yaml.safe_load(file.read_text())
        return parsed

    async def run_kubectl(self, *arguments: str, stdin: str | None = None, timeout_sec: float = 120) -> str:
        """Stdout. StepError with kubectl's words when it fails or takes too long."""
        return await run(self.kubectl_line(*arguments), self.environment(), stdin=stdin, timeout_sec=timeout_sec)

    async def get(self, *arguments: str) -> dict[str, Any]:
        """`kubectl get … -o json`; an absent object is an empty dict."""
        text = await self.run_kubectl("get", *arguments, "--ignore-not-found", "-o", "json")
        return json.loads(text) if text.strip() else {}

    async def apply(self, objects: Sequence[Mapping[str, Any]], namespace: str | None = None) -> None:
        arguments = ["apply", "--server-side", "--field-manager=openclaw-quickstart", "--force-conflicts", "-f", "-"]
        where = ["-n", namespace] if namespace else []
        await self.run_kubectl(*where, *arguments, stdin=yaml.safe_dump_all(objects))

    async def run_helm(self, *arguments: str, timeout_sec: float = 300) -> str:
        where = ["--kube-context", self.context] if self.context else []
        return await run([self.helm, *where, *arguments], self.environment(), timeout_sec=timeout_sec)


async def run(
    line: Sequence[str], environment: Mapping[str, str], *, stdin: str | None = None, timeout_sec: float
) -> str:
    """Stdout of a command that must succeed; it is ended when time is over or the caller is cancelled."""
    process = await asyncio.create_subprocess_exec(
        *line,
        env=dict(environment),
        stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(timeout_sec):
            out, err = await process.communicate(stdin.encode() if stdin is not None else None)
    except TimeoutError as error:
        raise StepError(f"{_short(line)} did not end within {timeout_sec:.0f} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise StepError(f"{_short(line)} failed: {err.decode(errors='replace').strip()[-1500:]}")
    return out.decode(errors="replace")


async def run_in_view(line: Sequence[str], environment: Mapping[str, str], timeout_sec: float) -> None:
    """A command that shows its own progress on our terminal. StepError when it fails."""
    process = await asyncio.create_subprocess_exec(*line, env=dict(environment), cwd=ROOT)
    try:
        async with asyncio.timeout(timeout_sec):
            code = await process.wait()
    except TimeoutError as error:
        raise StepError(f"{_short(line)} did not end within {timeout_sec:.0f} s") from error
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    if code:
        raise StepError(f"{_short(line)} failed (exit code {code}); its own words stand above")


def _short(line: Sequence[str]) -> str:
    return " ".join([Path(line[0]).name, *line[1:]])[:200]
