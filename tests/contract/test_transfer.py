"""The trainer's real sender and real SGLang over gloo: what lies on the volume arrives, and a failure wakes all.

The sender runs here, on the machine of the embedded cluster's node, on a volume made from the same seeds as the pod's.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from openclaw_core import names
from openclaw_core.wire import JoinTransfer, TensorSpec, Transfer, TransferPlan
from openclaw_engine.sglang import Sglang
from openclaw_engine.transfer import Receiver, TransferError
from tests.contract import engine_pod
from tests.contract.engine_pod import EnginePod
from tests.fakes import tiny_policy, weight_versions

pytestmark = [
    pytest.mark.contract,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif("KUBECONTEXT" in os.environ, reason="pods of a foreign cluster cannot reach this machine"),
]

PORT = 18301


@pytest.fixture(scope="module")
def pod() -> Iterator[EnginePod]:
    with engine_pod.namespace() as space, engine_pod.sglang_alone(space) as made:
        yield made


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """`v1` and `v2` as the pod has them; their versions here."""
    root = tmp_path_factory.mktemp("weights")
    for number in (1, 2):
        tiny_policy.write_model(root / f"v{number}", number)
    return root, {f"v{number}": str(weight_versions.seal(root / f"v{number}", number)) for number in (1, 2)}


@asynccontextmanager
async def _sender(root: Path, session: aiohttp.ClientSession) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process as the trainer starts it; ready when it answers."""
    environment = os.environ | {"OPENCLAW_WEIGHTS_DIR": str(root), "OPENCLAW_SENDER_PORT": str(PORT)}
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "openclaw_trainer.sender", env=environment)
    try:
        async with asyncio.timeout(90):
            while not await _answers(session):  # noqa: ASYNC110 - another process; nothing signals us
                await asyncio.sleep(0.2)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _answers(session: aiohttp.ClientSession) -> bool:
    try:
        async with session.get(f"http://127.0.0.1:{PORT}/"):
            return True
    except aiohttp.ClientError:
        return False


def _node() -> str:
    """Address of this machine as pods see it."""
    path = "jsonpath={.items[0].status.addresses[?(@.type=='InternalIP')].address}"
    return engine_pod.kubectl("get", "nodes", "-o", path).strip()


async def test_transferred_weights_are_those_of_the_volume(pod: EnginePod, volume: tuple[Path, dict[str, str]]) -> None:
    root, versions = volume
    async with aiohttp.ClientSession() as session, _sender(root, session):
        sglang = Sglang(session, pod.sglang, engine_pod.ADMIN_KEY)
        receiver = Receiver(session, sglang, "engine-0", 1, "cpu")
        transfer = Transfer(url=f"http://{_node()}:{PORT}", engines=1)
        checksums = {}
        for epoch, name in enumerate(("v1", "v2", "v1")):
            await sglang.pause("retract", 10)
            await receiver.receive(transfer, epoch, versions[name], 30)
            await sglang.resume(10)
            assert await sglang.weight_version() == versions[name]
            checksum = await sglang.checksum(30)
            assert checksums.setdefault(name, checksum) == checksum
        assert checksums["v1"] != checksums["v2"]
        await sglang.update(f"{names.WEIGHTS_DIR}/v2", versions["v2"], 30)
        assert await sglang.checksum(30) == checksums["v2"]


async def test_engine_wakes_when_a_member_stays_away_and_reads_the_volume(
    pod: EnginePod, volume: tuple[Path, dict[str, str]]
) -> None:
    root, versions = volume
    async with aiohttp.ClientSession() as session, _sender(root, session) as process:
        sglang = Sglang(session, pod.sglang, engine_pod.ADMIN_KEY)
        receiver = Receiver(session, sglang, "engine-0", 1, "cpu")
        transfer = Transfer(url=f"http://{_node()}:{PORT}", engines=2)
        await sglang.pause("retract", 10)
        ghost = JoinTransfer(
            epoch=9, version=versions["v1"], engine="ghost", ranks=1, engines=2, device="cpu"
        ).model_dump_json()
        away = asyncio.ensure_future(_post(session, ghost))
        with pytest.raises(TransferError):
            await receiver.receive(transfer, 9, versions["v1"], 25)
        assert await away == 200
        async with asyncio.timeout(30):
            assert await process.wait() != 0, "the sender keeps the others waiting"
        await sglang.update(f"{names.WEIGHTS_DIR}/v1", versions["v1"], 20)
        await sglang.resume(10)
        assert await sglang.weight_version() == versions["v1"] and await sglang.is_ready()


class _Stopping(Sglang):
    """The client of SGLang; the sender stops dead just before its call named `at`."""

    def __init__(self, session: aiohttp.ClientSession, pod: EnginePod, sender: asyncio.subprocess.Process, at: str):
        super().__init__(session, pod.sglang, engine_pod.ADMIN_KEY)
        self._sender, self._at = sender, at

    async def join_group(self, plan: TransferPlan, group: str, host: str, timeout: float) -> None:
        self._stop("join_group")
        await super().join_group(plan, group, host, timeout)

    async def receive(self, group: str, bucket: list[TensorSpec], version: str | None, timeout: float) -> None:
        self._stop("receive")
        await super().receive(group, bucket, version, timeout)

    def _stop(self, call: str) -> None:
        if call == self._at:
            self._sender.send_signal(signal.SIGSTOP)


@pytest.mark.parametrize("at", ["join_group", "receive"])
async def test_engine_wakes_when_the_sender_is_stopped_and_reads_the_volume(
    pod: EnginePod, volume: tuple[Path, dict[str, str]], at: str
) -> None:
    root, versions = volume
    async with aiohttp.ClientSession() as session, _sender(root, session) as process:
        sglang: Sglang = _Stopping(session, pod, process, at)
        receiver = Receiver(session, sglang, "engine-0", 1, "cpu")
        await sglang.pause("retract", 10)
        with pytest.raises(TransferError):
            await receiver.receive(Transfer(url=f"http://{_node()}:{PORT}", engines=1), 19, versions["v2"], 8)
        await sglang.update(f"{names.WEIGHTS_DIR}/v2", versions["v2"], 8)
        await sglang.resume(5)
        assert await sglang.weight_version() == versions["v2"] and await sglang.is_ready()
        assert process.returncode is None, "it was stopped all the time"
    async with aiohttp.ClientSession() as session, _sender(root, session):
        sglang = Sglang(session, pod.sglang, engine_pod.ADMIN_KEY)
        receiver = Receiver(session, sglang, "engine-0", 1, "cpu")
        await receiver.receive(Transfer(url=f"http://{_node()}:{PORT}", engines=1), 20, versions["v1"], 30)
        assert await sglang.weight_version() == versions["v1"], "no session or group was left open"


async def _post(session: aiohttp.ClientSession, body: str) -> int:
    async with session.post(f"http://127.0.0.1:{PORT}/transfers", data=body) as answer:
        return answer.status
