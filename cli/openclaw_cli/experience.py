"""`openclaw export` and `openclaw erase`: what the experience store of a training keeps, and forgetting a session."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import click

from openclaw_cli import exported, gateway_access
from openclaw_cli.gateway_access import AccessError, Gateway

F = TypeVar("F", bound=Callable[..., Any])
_STATES = ("next_state", "judge", "queued", "leased", "trained", "dropped")


def _where(command: F) -> F:
    """Options that say which gateway."""
    for option in (
        click.option("--context", help="Context of the kubeconfig."),
        click.option("-n", "--namespace", help="Namespace of the training."),
        click.option(
            "--url", help="Gateway's internal port, instead of kubectl port-forward; token in the environment."
        ),
    ):
        command = option(command)
    return click.argument("training")(command)


@click.command()
@_where
@click.option("--format", "kind", type=click.Choice(["jsonl", "parquet"]), default="jsonl", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="File; default: standard output.")
@click.option(
    "--state", "states", type=click.Choice(_STATES), multiple=True, help="Only turns in this state; repeatable."
)
@click.option("--session", help="Only turns of this session.")
def export(
    training: str,
    url: str | None,
    namespace: str | None,
    context: str | None,
    kind: str,
    output: Path | None,
    states: tuple[str, ...],
    session: str | None,
) -> None:
    """Copy the turns that TRAINING's experience store keeps, oldest first: words, ids, logprobs, versions, scores."""
    if kind == "parquet" and output is None:
        raise click.UsageError("--format parquet needs a file: --output turns.parquet")
    query = urlencode([("state", state) for state in states] + ([("session", session)] if session else []))
    with _gateway(training, url, namespace, context) as gateway, gateway.open(f"/internal/export?{query}") as answer:
        if kind == "parquet" and output is not None:
            exported.write_parquet(answer, output)
        elif output is not None:
            with exported.whole_file(output) as file:
                exported.write_lines(answer, file)
        else:
            exported.write_lines(answer, sys.stdout.buffer)


@click.command()
@_where
@click.option("--session", required=True, help="Session to forget: X-Session-Id, as clients sent or were sent it.")
@click.option("--owner", help="Only under the client key with this fingerprint, as exports show it.")
@click.confirmation_option(prompt="Erase the session and all its turns?")
def erase(
    training: str, url: str | None, namespace: str | None, context: str | None, session: str, owner: str | None
) -> None:
    """Delete one session and all its turns from TRAINING's experience store and from its files."""
    body = json.dumps({"session": session, "owner": owner}).encode()
    with (
        _gateway(training, url, namespace, context) as gateway,
        gateway.open("/internal/sessions/erase", body) as answer,
    ):
        erased = json.loads(answer.read())
    if not erased["turns"] and not erased["sessions"]:
        raise click.ClickException(f"no session {session!r} in there")
    click.echo(f"erased {erased['turns']} turns")


@contextlib.contextmanager
def _gateway(training: str, url: str | None, namespace: str | None, context: str | None) -> Iterator[Gateway]:
    options = [f"--namespace={namespace}"] * bool(namespace) + [f"--context={context}"] * bool(context)
    try:
        if url is not None:
            yield gateway_access.at(url)
        else:
            with gateway_access.of_training(training, ["kubectl", *options]) as gateway:
                yield gateway
    except AccessError as error:
        raise click.ClickException(str(error)) from error
    except (OSError, HTTPException) as error:
        raise click.ClickException(f"the answer was cut off: {error!r}") from error
