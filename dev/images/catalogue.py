"""Which images there are and what each is made of. Data only."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Image:
    """One image. `inputs` are files and folders, relative to the repository root, that its content depends on."""

    name: str
    dockerfile: str
    inputs: tuple[str, ...]
    parent: str | None = None
    """Name of the image it is built on, passed as build argument `<PARENT>_IMAGE`. None: the Python base."""


def _process(name: str, folder: str) -> Image:
    lock = f"requirements/{name}.txt"
    package = f"{folder}/openclaw_{name}"
    return Image(name, f"{folder}/Dockerfile", ("requirements/uv.txt", lock, "core/openclaw_core", package))


IMAGES: tuple[Image, ...] = (
    Image("torch", "images/torch.Dockerfile", ("requirements/uv.txt", "requirements/torch.txt")),
    Image(
        "engine",
        "images/engine/Dockerfile",
        (
            "requirements/uv.txt",
            "requirements/engine.txt",
            "requirements/sglang.txt",
            "images/engine/cpu",
            "core/openclaw_core",
            "images/engine/openclaw_engine",
        ),
        parent="torch",
    ),
    Image(
        "trainer",
        "images/trainer/Dockerfile",
        ("requirements/trainer.txt", "core/openclaw_core", "images/trainer/openclaw_trainer"),
        parent="torch",
    ),
    Image(
        "quickstart",
        "examples/quickstart/Dockerfile",
        (
            "requirements/quickstart.txt",
            "images/environment/openclaw_environment/__init__.py",
            "images/environment/openclaw_environment/py.typed",
            "images/environment/openclaw_environment/tasks",
            "examples/quickstart/prepare_model.py",
            "examples/quickstart/smollm2_model.py",
            "examples/quickstart/tiny_model.py",
        ),
        parent="torch",
    ),
    _process("gateway", "images/gateway"),
    _process("judge", "images/judge"),
    _process("environment", "images/environment"),
    _process("operator", "operator"),
)
"""Parents before their children."""

BY_NAME = {image.name: image for image in IMAGES}


def with_parents(names: tuple[str, ...]) -> list[Image]:
    """The named images and what they are built on, parents first. KeyError for an unknown name."""
    wanted = set(names)
    wanted |= {parent for name in names if (parent := BY_NAME[name].parent) is not None}
    return [image for image in IMAGES if image.name in wanted]
