"""The `openclaw` command (and `kubectl openclaw`): reads files, prints resources, asks gateways for turns."""

from datetime import UTC, datetime
from pathlib import Path

import click
import yaml

from openclaw_cli import convert as conversion
from openclaw_cli import experience
from openclaw_cli import validate as validation
from openclaw_cli.located import FileError, Located, read_toml, read_yaml


@click.group()
def main() -> None:
    """OpenClaw Training: online reinforcement learning of an LLM from its live use."""


@main.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.argument("settings", type=click.Path(path_type=Path))
@click.option("--name", default="policy", show_default=True, help="Name of the training.")
@click.option("--model-path", default="base", show_default=True, help="spec.model.path.")
@click.option("--secret", default="judge-api", show_default=True, help="Secret that holds the judge key.")
@click.option("--secret-key", default="api-key", show_default=True, help="Key inside that Secret.")
@click.option("--trainer-gpus", default=1, show_default=True, help="GPUs of the trainer; 0 asks for none.")
def convert(
    config: Path, settings: Path, name: str, model_path: str, secret: str, secret_key: str, trainer_gpus: int
) -> None:
    """Write the OpenClawTraining equivalent to CONFIG (TOML) and SETTINGS (JSON)."""
    files = {conversion.CONFIG: _toml(config), conversion.SETTINGS: _single(settings)}
    converted = conversion.convert(
        files,
        name=name,
        model_path=model_path,
        secret=secret,
        secret_key=secret_key,
        trainer_gpus=trainer_gpus,
        now=datetime.now(UTC),
        file_names={conversion.CONFIG: str(config), conversion.SETTINGS: str(settings)},
    )
    text = yaml.safe_dump(converted.resource, sort_keys=False)
    faults = validation.faults(Located(converted.resource, {}))
    _fail_on(converted.problems or [converted.told(fault) for fault in faults])
    click.echo(text, nl=False)
    if hold := converted.resource["spec"].get("policyServing", {}).get("hold"):
        click.echo(
            f"note: spec.policyServing.hold ends by itself at {hold['until']}; move `until` to hold longer", err=True
        )


@main.command()
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
def validate(files: tuple[Path, ...]) -> None:
    """Check resources offline against the CRD's own rules."""
    faults: list[str] = []
    checked = 0
    for file in files:
        for document in _documents(file):
            if isinstance(document.data, dict) and document.data.get("kind") == "OpenClawTraining":
                checked += 1
                faults += validation.problems(document, str(file))
    if not checked:
        faults.append(f"{', '.join(map(str, files))}: no OpenClawTraining in there")
    _fail_on(faults)
    click.echo(f"{checked} valid")


def _documents(file: Path) -> list[Located]:
    try:
        return read_yaml(file)
    except FileError as error:
        raise click.ClickException(str(error)) from error


def _single(file: Path) -> Located:
    documents = _documents(file)
    if len(documents) != 1:
        raise click.ClickException(f"{file}: must hold one JSON object")
    return documents[0]


def _toml(file: Path) -> Located:
    try:
        return read_toml(file)
    except FileError as error:
        raise click.ClickException(str(error)) from error


def _fail_on(faults: list[str]) -> None:
    for fault in faults:
        click.echo(fault, err=True)
    if faults:
        raise SystemExit(1)


main.add_command(experience.export)
main.add_command(experience.erase)


if __name__ == "__main__":
    main()
