"""Entry of SGLang's scheduler processes: SGLang's own, with limits to its waits for a sender (`transfer_group`), and
with a second set of weights for models known to bear it.

    agent ──"DIRECTORY\\n"──▶ socket of this rank ─▶ thread: stage ──"ok\\n", or why not──▶ agent
    agent ──/update_weights_from_disk──▶ SGLang ─▶ staged from that directory? exchange : SGLang reads it as ever

A rank that has nothing staged reads for itself, so ranks need not agree.
"""

import contextvars
import copy
import functools
import logging
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import torch

from openclaw_engine import transfer_group
from openclaw_engine.double_buffer import DoubleBuffer
from openclaw_engine.staging import ENV_DIRECTORY, EXCHANGED, OK

logger = logging.getLogger(__name__)

KNOWN_MODELS = frozenset({"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
"""Whose `load_weights` writes parameters and nothing else."""
_AS_READ = frozenset({"NoneType", "UnquantizedLinearMethod", "UnquantizedEmbeddingMethod"})
"""Quantization methods that leave weights as they were read."""
_HEAR_SEC = 5.0
_ALIVE_SEC = 1.0


def run(*arguments: Any, **options: Any) -> None:
    """What SGLang starts as a process, with the arguments it gives its own."""
    from sglang.srt.managers.scheduler import run_scheduler_process

    transfer_group.install()
    if directory := os.environ.get(ENV_DIRECTORY):
        install(Path(directory))
    run_scheduler_process(*arguments, **options)


def install(directory: Path) -> None:
    """Have every runner of this process listen in `directory`, and exchange what was staged."""
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater

    begin, update = ModelRunner.init_weight_updater, WeightUpdater.update_weights_from_disk

    @functools.wraps(begin)
    def init_weight_updater(runner: Any) -> None:
        begin(runner)
        buffer = runner.double_buffer = DoubleBuffer(lambda: runner.model, functools.partial(read, runner))
        context = contextvars.copy_context()
        listen = functools.partial(context.run, serve, buffer, runner, directory / f"{os.getpid()}-{id(runner)}.sock")
        threading.Thread(target=listen, name="staging", daemon=True).start()

    @functools.wraps(update)
    def update_weights_from_disk(updater: Any, model_path: str, load_format: str, *rest: Any, **more: Any) -> Any:
        if not updater.get_model_runner().double_buffer.exchange(model_path):
            return update(updater, model_path, load_format, *rest, **more)
        note(updater, model_path, load_format)
        return True, EXCHANGED

    ModelRunner.init_weight_updater = init_weight_updater
    WeightUpdater.update_weights_from_disk = update_weights_from_disk


def note(updater: Any, model_path: str, load_format: str) -> None:
    """Say in SGLang's records what an update of its own would have said."""
    from sglang.srt.configs.load_config import LoadConfig

    updater.model_config.model_path = model_path
    updater.update_model_fields(
        updater.get_model(),
        model_path=model_path,
        load_format=load_format,
        load_config=LoadConfig(load_format=load_format),
    )


def read(runner: Any, spare: Any, directory: str) -> None:
    """Load the files of `directory` as SGLang would, but into `spare`."""
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.model_loader.loader import DefaultModelLoader, get_model_loader

    config = copy.copy(runner.model_config)
    config.model_path = directory
    loader = get_model_loader(LoadConfig(load_format=runner.load_config.load_format), config)
    source = DefaultModelLoader.Source.init_new(config, spare)
    spare.load_weights(loader._get_weights_iterator(source))


def unsuitable(runner: Any) -> str | None:
    """Why this runner cannot have a second set of weights; None: it can."""
    from sglang.srt.runtime_context import get_parallel

    model, methods = runner.model, {type(getattr(module, "quant_method", None)) for module in runner.model.modules()}
    others = sorted({kind.__name__ for kind in methods} - _AS_READ)
    if type(model).__name__ not in KNOWN_MODELS:
        return f"the loader of {type(model).__name__} may write more than parameters"
    if others:
        return f"weights are converted after reading: {', '.join(others)}"
    if any(getattr(module, "use_intel_amx_backend", False) for module in model.modules()):
        return "weights are packed for AMX after reading"
    if get_parallel().pp_size > 1 or runner.is_draft_worker or not runner.spec_algorithm.is_none():
        return "pipeline parallelism and speculative decoding update more than one model"
    return None


def serve(buffer: DoubleBuffer, runner: Any, path: Path) -> None:
    """Answer the agent, one order after another, for ever."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path.with_suffix(".new")))
        listener.listen()
        path.with_suffix(".new").rename(path)
        while True:
            connection, _ = listener.accept()
            with connection:
                _answer(buffer, runner, connection)


def _answer(buffer: DoubleBuffer, runner: Any, connection: socket.socket) -> None:
    """One order: an empty line every second while it is carried out, so that silence means a process that hangs."""
    connection.settimeout(_HEAR_SEC)
    try:
        with connection.makefile("rw", encoding="utf-8") as stream, ThreadPoolExecutor(1) as worker:
            directory = stream.readline().rstrip("\n")
            context = contextvars.copy_context()
            answer = worker.submit(context.run, _staged, buffer, runner, directory)
            while not wait((answer,), _ALIVE_SEC).done:
                stream.write("\n")
                stream.flush()
            stream.write(f"{answer.result()}\n")
    except OSError as error:
        logger.warning("the agent left before its order was done: %s", error)


def _staged(buffer: DoubleBuffer, runner: Any, directory: str) -> str:
    """OK, or one line why `directory` is not staged."""
    if runner.device == "cuda":
        torch.cuda.set_device(runner.gpu_id)  # a thread of its own begins on the first GPU
    if (why := unsuitable(runner)) is not None:
        return why
    try:
        buffer.stage(directory)
    except Exception as error:  # whatever SGLang's loaders raise: this loop is the outermost one
        logger.warning("version not staged", exc_info=True)
        return f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
    return OK
