"""Wires the trainer: configuration → parts → its loops until SIGTERM.

    training · state server · keeper of the sender (with storage.weights.transfer distributed)

With `procsPerNode` > 1 or `nodes` > 1 it starts itself again under torchrun; rank 0, in the first pod, is the trainer,
the others follow it. The first process of every other pod answers its probes.

env  OPENCLAW_CONFIG          config.json (core TrainerConfig)
     OPENCLAW_GATEWAY_TOKEN   bearer token of the gateway's internal port
     OPENCLAW_KUBERNETES      `off`: announce into <weights>/published.json instead of the Lease
     OPENCLAW_WEIGHTS_DIR     the weights volume, default /var/lib/openclaw/weights
     OPENCLAW_TRAINER_PORT    default 8300
     OPENCLAW_NODE_RANK       with `nodes` > 1: which pod this is, from 0
     OPENCLAW_RENDEZVOUS      with `nodes` > 1: host:port of the first pod, where torchrun meets
     OMP_NUM_THREADS          threads of torch on the CPU, default 1
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from transformers.utils.logging import disable_progress_bar

from openclaw_core import kube, logs, names, placeholders, tasks
from openclaw_core.base_model import ModelMissingError
from openclaw_core.config.components import ConfigError, TrainerConfig, token_of
from openclaw_core.config.policy_training import PolicyTraining
from openclaw_trainer import base_model, sender_process, state_server
from openclaw_trainer.announce import AnnounceError, Announcer, FileAnnouncer, LeaseAnnouncer
from openclaw_trainer.checkpoint import Checkpoints
from openclaw_trainer.gateway_client import GatewayClient, GatewayError
from openclaw_trainer.loop import Parts, TrainingLoop
from openclaw_trainer.policy import Policy
from openclaw_trainer.snapshot import CheckpointMismatchError
from openclaw_trainer.state import State
from openclaw_trainer.step import Learner
from openclaw_trainer.team import Team, follow
from openclaw_trainer.volume import StaleEpochError, Volume
from openclaw_trainer.world import World

log = logging.getLogger(__name__)
EXPECTED = (ConfigError, ModelMissingError, CheckpointMismatchError, StaleEpochError, GatewayError, AnnounceError)
"""Ends that say in one sentence what is wrong."""


def main() -> None:
    config = TrainerConfig.load()
    logs.configure(names.TRAINER, config.training)
    disable_progress_bar()
    training = config.policy_training
    refuse_unsupported(training)
    refuse_placeholders(os.environ)
    if config.logging.tensorboard or config.logging.wandb is not None:
        log.warning("logging.tensorboard and logging.wandb have no effect yet: read /metrics and /state")
    if training.procs_per_node * training.nodes > 1 and "RANK" not in os.environ:
        os.execv(sys.executable, torchrun(training.procs_per_node, training.nodes, os.environ))
    world = World.join(training.device)
    if world.rank > 0:
        _limit_threads()
        asyncio.run(base_model.present(config.model, _weights_dir(), lambda _: None))
        if os.environ.get("LOCAL_RANK") == "0":
            state_server.serve_follower(_port())
        follow(load(config, _weights_dir(), world), world)
        return
    token = gateway_token(os.environ)
    try:
        asyncio.run(run(config, token, world))
    except EXPECTED as error:
        # The container's last words, which the operator shows: one line instead of a traceback.
        log.error("the trainer ends: %s", error)
        raise SystemExit(1) from None


def refuse_placeholders(environ: Mapping[str, str]) -> None:
    """ConfigError for a user's secret that is there and cannot be meant; names the variable, never the value."""
    fields = {
        names.ENV_HF_TOKEN: "model.huggingFace.tokenSecretRef",
        names.ENV_WANDB_API_KEY: "logging.wandb.apiKeySecretRef",
    }
    for variable, field in fields.items():
        if fault := placeholders.variable_fault(environ, variable):
            raise ConfigError(f"{fault}: put the real one into the Secret of {field}")


def gateway_token(environ: Mapping[str, str]) -> str:
    """Bearer token of the gateway's internal port. ConfigError names the variable."""
    return token_of(environ, names.ENV_GATEWAY_TOKEN, "the gateway would refuse us")


def refuse_unsupported(training: PolicyTraining) -> None:
    """ConfigError for settings of the resource that this trainer does not implement."""
    if training.engine != "fsdp":
        raise ConfigError(f"policyTraining.engine {training.engine!r}: this trainer runs fsdp")
    if training.method != "binaryRl":
        raise ConfigError(f"policyTraining.method {training.method!r}: this trainer runs binaryRl")


def torchrun(processes: int, nodes: int, environ: Mapping[str, str]) -> list[str]:
    """Command line that starts this program once per GPU of the pod; ConfigError when a pod cannot find the others.

    Ranks follow the pods' numbers (static rendezvous), so rank 0 is in the first pod. A process that dies breaks the
    others' collectives: every pod's container ends, Kubernetes starts them again and they meet anew.
    """
    where = ["--standalone"]
    if nodes > 1:
        missing = [name for name in (names.ENV_NODE_RANK, names.ENV_RENDEZVOUS) if not environ.get(name)]
        if missing:
            raise ConfigError(f"policyTraining.nodes is {nodes} but {' and '.join(missing)} is not set in the pod")
        host, _, port = environ[names.ENV_RENDEZVOUS].rpartition(":")
        where = [
            f"--nnodes={nodes}",
            f"--node-rank={environ[names.ENV_NODE_RANK]}",
            f"--master-addr={host}",
            f"--master-port={port}",
        ]
    launcher = [sys.executable, "-m", "torch.distributed.run", *where, f"--nproc-per-node={processes}"]
    return [*launcher, "-m", "openclaw_trainer"]


def load(config: TrainerConfig, weights: Path, world: World) -> Learner:
    """Base model, adapters and optimizer of one rank."""
    base = base_model.locate(config.model, weights)
    return Learner(Policy.load(base, config.policy_training, world), config.policy_training, world)


async def run(config: TrainerConfig, token: str, world: World) -> None:
    """Start the state server first, so that a slow model load is visible, then train until told to stop."""
    stop, state = tasks.stop_on_signals(), State()
    loops: dict[str, Awaitable[None]] = {
        "state server": state_server.serve(state, _port()),
        "training": train(config, token, state, world),
    }
    if config.broadcasts:
        loops["sender"] = sender_process.keep_running(config.policy_training.device)
    await tasks.run_all(loops, stop=stop)


async def train(config: TrainerConfig, token: str, state: State, world: World) -> None:
    """Load everything, resume, train for ever. Any failure is kept in /state and raised."""
    weights, training = _weights_dir(), config.policy_training
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch", initializer=_limit_threads) as worker:
        try:
            await base_model.present(config.model, weights, state.waits_for_model)
            async with announcer(config, weights) as announce, GatewayClient(config.gateway_url, token) as gateway:
                learner = await asyncio.get_running_loop().run_in_executor(worker, load, config, weights, world)
                parts = Parts(
                    training=training,
                    team=Team(learner, world),
                    volume=Volume(weights),
                    checkpoints=Checkpoints(weights / "checkpoints", training.checkpoint.keep),
                    announcer=announce,
                    gateway=gateway,
                    state=state,
                    worker=worker,
                    base=base_model.locate(config.model, weights),
                )
                loop = TrainingLoop(parts)
                await loop.start()
                await loop.run()
        except Exception as error:
            state.numbers.phase, state.numbers.error = "failed", f"{type(error).__name__}: {error}"
            log.exception("trainer ends")
            raise


def _port() -> int:
    return int(os.environ.get("OPENCLAW_TRAINER_PORT", names.PORT_TRAINER))


def _weights_dir() -> Path:
    return Path(os.environ.get("OPENCLAW_WEIGHTS_DIR", names.WEIGHTS_DIR))


@contextlib.asynccontextmanager
async def announcer(config: TrainerConfig, weights: Path) -> AsyncIterator[Announcer]:
    if os.environ.get("OPENCLAW_KUBERNETES") == "off":
        yield FileAnnouncer(weights / "published.json")
        return
    async with kube.Kube.in_cluster() as client:
        yield LeaseAnnouncer(client, config.training, config.namespace)


def _limit_threads() -> None:
    """One thread unless told otherwise: on few shared cores a second one spins and costs up to 20×."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
