"""The demo's command line."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    model: str
    reactions: str
    learning_rate: float | None
    minutes: float
    max_updates: int
    namespace: str
    judge_url: str | None
    judge_key_env: str | None
    judge_model: str | None
    build: bool
    out: Path


def parse(arguments: list[str] | None = None) -> Options:
    """Exits with argparse's own words on a mistake."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.quickstart.demo",
        description="Bring up a cluster and a policy that learns online; say plainly whether it did.",
    )
    parser.add_argument("--model", choices=("smollm2", "tiny"), default="smollm2", help="base model (smollm2)")
    parser.add_argument("--reactions", choices=("normal", "swapped"), default="normal", help="what users say (normal)")
    parser.add_argument("--learning-rate", type=float, help="instead of the training's own; 0 trains nothing")
    parser.add_argument("--minutes", type=float, default=20, help="time for learning, from the users' start (20)")
    parser.add_argument("--max-updates", type=int, default=40, help="optimizer steps at most (40)")
    parser.add_argument("--namespace", default="openclaw-demo", help="made anew each time (openclaw-demo)")
    parser.add_argument(
        "--judge-url", help="a real OpenAI-style endpoint, up to and including /v1, reachable from pods"
    )
    parser.add_argument("--judge-key-env", help="variable that holds its key here")
    parser.add_argument("--judge-model", help="model id to ask it for")
    parser.add_argument("--no-build", dest="build", action="store_false", help="cluster and images are there already")
    parser.add_argument("--out", type=Path, default=Path("out/quickstart"), help="folder for the picture and the log")
    found = parser.parse_args(arguments)
    if found.judge_url and not (found.judge_key_env and found.judge_model):
        parser.error("--judge-url needs --judge-key-env and --judge-model")
    if found.judge_key_env and not os.environ.get(found.judge_key_env, "").strip():
        parser.error(f"--judge-key-env: the variable {found.judge_key_env} is empty")
    return Options(**vars(found))
