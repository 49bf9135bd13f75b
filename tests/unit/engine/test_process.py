"""The SGLang process as the agent runs it, with a stand-in for the `sglang` package."""

import asyncio
import os
import textwrap
from pathlib import Path

import pytest

from openclaw_engine.process import SglangEndedError, SglangProcess

STAND_IN = {
    "launch_server.py": """
        import os, subprocess, sys, time
        from sglang.srt.entrypoints import http_server
        def run_server(arguments):
            entry = http_server.launch_server(arguments)
            with open(os.environ["ENTRY"], "w") as report:
                report.write(f"{entry.__module__}.{entry.__name__}")
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            with open(os.environ["REPORT"], "w") as report:
                report.write(" ".join([str(child.pid), *arguments]))
            time.sleep(float(os.environ.get("LIFE", "600")))
        """,
    "srt/plugins.py": "def load_plugins(): pass",
    "srt/server_args.py": "def prepare_server_args(arguments): return arguments",
    "srt/utils/__init__.py": "def kill_process_tree(pid, include_parent): pass",
    "srt/utils/auth.py": """
        import os
        def add_api_key_middleware(app, api_key, admin_api_key):
            with open(os.environ["GUARD"], "w") as report:
                report.write(f"{app} {api_key} {admin_api_key}")
        """,
    "srt/entrypoints/http_server.py": """
        app = "the app"
        def launch_server(server_args, *, run_scheduler_process_func): return run_scheduler_process_func
        """,
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    for name, code in STAND_IN.items():
        path = tmp_path / "sglang" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(code))
    report = {name: str(tmp_path / name.lower()) for name in ("REPORT", "GUARD", "ENTRY")}
    return {**os.environ, **report, "PYTHONPATH": str(tmp_path)}


async def report(path: Path) -> str:
    async with asyncio.timeout(20):
        while not path.exists() or not path.read_text():  # noqa: ASYNC110, ASYNC240 - another process writes it
            await asyncio.sleep(0.02)
    return path.read_text()  # noqa: ASYNC240 - a few bytes


def runs(pid: int) -> bool:
    """False also for a zombie: it is dead and only waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_key_guards_the_app_and_is_no_argument_and_schedulers_start_by_our_entry(
    environment: dict[str, str], tmp_path: Path
) -> None:
    process = await SglangProcess.start(["--model-path", "/m"], environment, "k3y")
    try:
        child, *arguments = (await report(tmp_path / "report")).split()
        assert arguments == ["--model-path", "/m"]
        assert (tmp_path / "guard").read_text() == "the app None k3y"
        assert (tmp_path / "entry").read_text() == "openclaw_engine.scheduler.run"
        assert runs(int(child))
    finally:
        await process.stop()


async def test_stop_ends_the_whole_group(environment: dict[str, str], tmp_path: Path) -> None:
    process = await SglangProcess.start([], environment, "k3y")
    child = int((await report(tmp_path / "report")).split()[0])
    await asyncio.wait_for(process.stop(), 10)
    await asyncio.sleep(0.1)
    assert not runs(child)
    await process.stop()


async def test_end_of_sglang_is_told_with_its_status(environment: dict[str, str], tmp_path: Path) -> None:
    process = await SglangProcess.start([], environment | {"LIFE": "0"}, "k3y")
    with pytest.raises(SglangEndedError, match="ended with status 0"):
        await asyncio.wait_for(process.watch(), 20)
    await process.stop()
    child = int((await report(tmp_path / "report")).split()[0])
    await asyncio.sleep(0.1)
    assert not runs(child)
