"""`python -m tests.faults.parts <part>`: one process of the fault matrix, with the real code of its image.

`gateway` and `agent` run the images' own `main` with paths below $MATRIX_DIR and the API server of $KUBECONFIG;
`sglang` is the fake engine that the agent starts in SGLang's place; `trainer` writes and announces versions as the real
one does. Preparations, gateways' acks and updates are slowed, so that every state of a sync can be hit.
"""

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import yaml

from openclaw_core import kube as kube_module
from openclaw_core import leases, names, versions
from openclaw_core.kube import Kube
from openclaw_core.versions import WeightVersion
from tests.fakes import weight_versions
from tests.fakes.engine import FakeEngine, Knobs

PREPARE_SEC = 1.0
ACK_SEC = 0.4
UPDATE_SEC = 1.5
DIRECTORY = Path(os.environ.get("MATRIX_DIR", "."))


def _kube() -> Kube:
    return Kube.from_kubeconfig(yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text()))


def gateway() -> None:
    """The real gateway; it confirms a hold a little late."""
    from openclaw_gateway import __main__ as image
    from openclaw_gateway.departures import Departures

    async def all_sent(departures: Departures, timeout_sec: float) -> bool:
        await asyncio.sleep(ACK_SEC)
        return await sent(departures, timeout_sec)

    sent, Departures.all_sent = Departures.all_sent, all_sent  # type: ignore[assignment, method-assign]
    kube_module.Kube.in_cluster = classmethod(lambda _: _kube())  # type: ignore[assignment, method-assign]
    raise SystemExit(image.main())


def operator() -> None:
    """The real operator; a matrix pauses more than a tenth of the time, and is not about that."""
    from openclaw_operator import __main__ as image
    from openclaw_operator.weightsync import holds

    holds.HOLD_SHARE_LIMIT = 1.0
    image.main()


def agent() -> None:
    """The real sync agent; it starts the fake engine, and reads a version slowly for the first time."""
    from openclaw_engine import __main__ as image
    from openclaw_engine.manifest import Volume
    from openclaw_engine.process import SglangProcess

    async def start(
        cls: type[SglangProcess], arguments: Sequence[str], environment: Mapping[str, str], admin_key: str
    ) -> SglangProcess:
        del environment
        line = (sys.executable, "-m", "tests.faults.parts", "sglang", *arguments)
        process = await asyncio.create_subprocess_exec(
            *line, stdin=asyncio.subprocess.PIPE, start_new_session=True, env=dict(os.environ)
        )
        assert process.stdin is not None
        process.stdin.write(f"{admin_key}\n".encode())
        process.stdin.close()
        (DIRECTORY / f"sglang-{os.environ['POD']}.pid").write_text(str(process.pid))
        return cls(process)

    def check(volume: Volume, version: WeightVersion) -> Path:
        if version not in volume._weights:
            time.sleep(PREPARE_SEC)
        return checked(volume, version)

    checked, Volume.check = Volume.check, check  # type: ignore[assignment, method-assign]
    SglangProcess.start = classmethod(start)  # type: ignore[assignment, method-assign]
    names.WEIGHTS_DIR = str(DIRECTORY / "weights")
    names.TARGET_FILE = str(DIRECTORY / f"target-{os.environ['POD']}.json")
    names.EPOCH_FILE = str(DIRECTORY / f"epoch-{os.environ['POD']}")
    image.main()


def sglang(arguments: Sequence[str]) -> None:
    """The fake engine on SGLang's port, at the weights it is given; ends with the agent that started it."""
    given = dict(pairwise(arguments))
    parent, key = os.getppid(), sys.stdin.readline().strip()

    async def serve() -> None:
        engine = FakeEngine(
            version=given["--weight-version"],
            model_path=given["--model-path"],
            admin_key=key,
            host="0.0.0.0",
            port=names.PORT_SGLANG,
            knobs=Knobs(update_delay_sec=UPDATE_SEC),
        )
        async with engine:
            while os.getppid() == parent:  # noqa: ASYNC110 - nobody tells us that the parent ended
                await asyncio.sleep(0.2)

    asyncio.run(serve())


def trainer() -> None:
    """Write and announce versions up to the number in `wanted`; after a start the newest complete one again."""
    volume, wanted = DIRECTORY / "weights", DIRECTORY / "wanted"

    async def run() -> None:
        announced = 0
        async with _kube() as api:
            while True:
                number = int(wanted.read_text() or 0)
                if number > announced and await _announce(api, _version(volume, number)):
                    announced = number
                await asyncio.sleep(0.1)

    asyncio.run(run())


def _version(volume: Path, number: int) -> WeightVersion:
    """The version of this number, written now if it is not there."""
    final, fresh = volume / f"v{number}", volume / f"v{number}.tmp"
    if not final.exists():
        fresh.mkdir(exist_ok=True)
        (fresh / "model.safetensors").write_bytes(b"%d" % number)
        (fresh / "config.json").write_text("{}")
        weight_versions.seal(fresh, number)
        fresh.rename(final)
    return versions.Manifest.model_validate_json((final / versions.MANIFEST_NAME).read_text()).version()


async def _announce(api: Kube, version: WeightVersion) -> bool:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{os.environ['NAMESPACE']}/leases/{names.published_lease('demo')}"
    try:
        async with asyncio.timeout(3):
            await api.merge_patch(path, leases.render_published(version, version.digest8 * 8, 1))
    except (OSError, TimeoutError, kube_module.KubeError):
        return False
    return True


PARTS = {"operator": operator, "gateway": gateway, "agent": agent, "trainer": trainer}


def main(part: str, arguments: Sequence[str]) -> None:
    if part == "sglang":
        sglang(arguments)
    else:
        PARTS[part]()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
