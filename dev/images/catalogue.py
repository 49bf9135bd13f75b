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
    is_base: bool = False
    """Only there to be built on; runs nowhere."""


def _process(name: str, folder: str) -> Image:
    lock = f"requirements/{name}.txt"
    package = f"{folder}/openclaw_{name}"
    return Image(name, f"{folder}/Dockerfile", ("requirements/uv.txt", lock, "core/openclaw_core", package))


IMAGES: tuple[Image, ...] = (
    Image("torch", "images/torch.Dockerfile", ("requirements/uv.txt", "requirements/torch.txt"), is_base=True),
    Image(
        "sglang",
        "images/engine/sglang.Dockerfile",
        ("requirements/engine.txt", "requirements/sglang.txt"),
        parent="torch",
        is_base=True,
    ),
    Image(
        "engine",
        "images/engine/Dockerfile",
        ("images/engine/cpu", "core/openclaw_core", "images/engine/openclaw_engine"),
        parent="sglang",
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


PROCESSES = tuple(image.name for image in IMAGES if not image.is_base)


def ancestors(name: str) -> list[str]:
    """What an image is built on, nearest first."""
    parent = BY_NAME[name].parent
    return [] if parent is None else [parent, *ancestors(parent)]


def with_parents(names: tuple[str, ...]) -> list[Image]:
    """The named images and what they are built on, parents first. KeyError for an unknown name."""
    wanted = set(names).union(*(ancestors(name) for name in names))
    return [image for image in IMAGES if image.name in wanted]
