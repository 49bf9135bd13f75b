"""`python -m dev.images.build [name …]`: build and push the images whose inputs changed.

    sources ─▶ snapshot ─▶ tags ─▶ registry has them? ─no─▶ base ─▶ build, parents first ─▶ push ─▶ prune ─▶ tags.json
                                      └yes─▶ nothing to do                      (beside the next build)

Environment: REGISTRY (default the embedded cluster's), BASE_IMAGE (default: made from Debian's packages).
"""

import argparse
import fcntl
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from dev.images import base, build_secrets, contents, registry
from dev.images.buildah import Buildah, BuildahError
from dev.images.catalogue import PROCESSES, Image, with_parents

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_REGISTRY = "127.0.0.1:5055"
NEEDED_GB = {"torch": 30.0, "sglang": 20.0, "engine": 8.0, "trainer": 8.0, "quickstart": 8.0}
"""Free disk an image needs while it is built, pushed and unpacked, measured; others need a few hundred MB."""
TIGHT_GB, VERY_TIGHT_GB = 35.0, 25.0
"""Below these, unused layers go after the push, then all layers (the registry has them)."""


class ImagesError(Exception):
    """The images cannot be built; the message is for the person at the terminal."""


@dataclass(frozen=True)
class Settings:
    registry: str
    base_image: str | None
    cache: Path

    @classmethod
    def from_environment(cls) -> "Settings":
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openclaw-training" / "images"
        return cls(os.environ.get("REGISTRY") or DEFAULT_REGISTRY, os.environ.get("BASE_IMAGE") or None, cache)


class Clock:
    """Prints lines with the seconds since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        sys.stdout.write(f"[{time.monotonic() - self._began:6.1f} s] {text}\n")
        sys.stdout.flush()


@dataclass(frozen=True)
class Job:
    """One image to build: its local name and where it goes."""

    image: Image
    local: str
    remote: str


def plan(settings: Settings, names: tuple[str, ...], sources: Path = ROOT) -> list[Job]:
    """Every wanted image with its content-keyed names, parents first."""
    key = base.key(settings.base_image)
    jobs = []
    for image in with_parents(names):
        tag = contents.tag(sources, image, key)
        name = f"openclaw-{image.name}"
        jobs.append(Job(image, f"localhost/{name}:{tag}", f"{settings.registry}/{name}:{tag}"))
    return jobs


def missing(settings: Settings, jobs: list[Job], names: tuple[str, ...]) -> list[Job]:
    """Jobs the registry lacks; a parent counts only when a child is missing."""
    absent = [job for job in jobs if not _is_pushed(settings, job)]
    needed = {job.image.name for job in absent if job.image.name in names}
    for job in reversed(absent):  # children before parents
        if job.image.name in needed and job.image.parent is not None:
            needed.add(job.image.parent)
    return [job for job in absent if job.image.name in needed]


def _is_pushed(settings: Settings, job: Job) -> bool:
    repository, _, tag = job.remote.removeprefix(f"{settings.registry}/").rpartition(":")
    return registry.has(settings.registry, repository, tag)


def build_all(settings: Settings, jobs: list[Job], planned: list[Job], sources: Path, clock: Clock) -> None:
    """Build `jobs` in order, each push beside the next build; `planned` holds their parents too."""
    _check_tools(settings)
    _check_disk(settings, jobs)
    buildah = Buildah(settings.cache)
    base_reference = _base(settings, buildah, clock)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(max_workers=1) as pusher:
        arguments = build_secrets.write(Path(folder))
        pushes: list[Future[None]] = []
        parents = {job.image.name: job for job in planned}
        for job in jobs:
            source = _source(settings, buildah, job, base_reference, parents)
            _build(buildah, job, sources, [*arguments, *source], clock)
            pushes.append(pusher.submit(_push, settings, buildah, job, clock))
        for push in pushes:
            push.result()
    for job in jobs:
        buildah.remove_other_tags(job.local.rpartition(":")[0], job.local)
    _prune(settings, buildah, clock)


def _base(settings: Settings, buildah: Buildah, clock: Clock) -> str:
    if settings.base_image is not None:
        return settings.base_image
    reference = f"localhost/openclaw-base:{base.key(None)}"
    if not buildah.exists(reference):
        buildah.import_root(base.root_file_system(settings.cache, clock.say), reference)
        clock.say("base image ready")
    return reference


def _source(settings: Settings, buildah: Buildah, job: Job, base_reference: str, parents: dict[str, Job]) -> list[str]:
    """Arguments that name what the image is built on: the base, or its parent from here or from the registry."""
    if job.image.parent is None:
        return ["--build-arg", f"BASE_IMAGE={base_reference}"]
    parent = parents[job.image.parent]
    reference = parent.local if buildah.exists(parent.local) else parent.remote
    plain = ["--tls-verify=false"] if registry.is_loopback(settings.registry.partition("/")[0]) else []
    return [*plain, "--build-arg", f"{job.image.parent.upper()}_IMAGE={reference}"]


def _build(buildah: Buildah, job: Job, sources: Path, arguments: list[str], clock: Clock) -> None:
    name = job.image.name
    if buildah.exists(job.local):
        clock.say(f"{name}: built before")
        return
    clock.say(f"{name}: building {job.local}")
    buildah.build(job.image.dockerfile, job.local, sources, arguments, lambda line: clock.say(f"{name}: {line}"))
    clock.say(f"{name}: built")


def _tls(settings: Settings) -> bool:
    return not registry.is_loopback(settings.registry.partition("/")[0])


def _push(settings: Settings, buildah: Buildah, job: Job, clock: Clock) -> None:
    if _is_pushed(settings, job):
        return
    buildah.push(job.local, job.remote, tls=_tls(settings))
    clock.say(f"{job.image.name}: pushed {job.remote}")


def _check_tools(settings: Settings) -> None:
    needed = ("buildah",) if settings.base_image is not None else ("buildah", "mmdebstrap")
    absent = [tool for tool in needed if shutil.which(tool) is None]
    if absent:
        raise ImagesError(
            f"{' and '.join(absent)} not found; `make cluster-up` installs what is needed on Debian, "
            f"or install it yourself: apt-get install {' '.join(absent)}"
        )
    if os.geteuid() != 0:
        raise ImagesError("images are built as root here (buildah with chroot isolation); run this as root")


def _check_disk(settings: Settings, jobs: list[Job]) -> None:
    needed = max([NEEDED_GB.get(job.image.name, 2.0) for job in jobs])
    free = _free_gb(settings.cache)
    if free < needed:
        raise ImagesError(
            f"{free:.0f} GB free at {settings.cache}, but building {jobs[0].image.name} needs {needed:.0f} GB"
        )


def _free_gb(path: Path) -> float:
    path.mkdir(parents=True, exist_ok=True)
    return shutil.disk_usage(path).free / 1e9


def _prune(settings: Settings, buildah: Buildah, clock: Clock) -> None:
    for everything, limit in ((False, TIGHT_GB), (True, VERY_TIGHT_GB)):
        if _free_gb(settings.cache) < limit:
            buildah.prune(everything=everything)
            clock.say(
                f"removed {'all' if everything else 'unused'} build layers: {_free_gb(settings.cache):.0f} GB free"
            )


@contextmanager
def _alone(cache: Path, clock: Clock) -> Iterator[None]:
    """One build at a time on this machine: a second one waits and then finds the work done."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            clock.say("another build is running; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_tags(path: Path, jobs: list[Job]) -> dict[str, str]:
    """Add the references to the file, keeping those of images not named this time."""
    try:
        tags = dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        tags = {}
    tags |= {job.image.name: job.remote for job in jobs if not job.image.is_base}
    _replace(path, json.dumps(tags, indent=2, sort_keys=True) + "\n")
    return tags


def write_values(path: Path, tags: dict[str, str]) -> None:
    """The same references as values of the chart, for `helm --values`; the quickstart's image is none of its own."""
    chosen = {name: reference for name, reference in tags.items() if name != "quickstart"}
    _replace(path, "# Written by `make images`.\n" + yaml.safe_dump({"images": chosen}))


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".tmp")
    partial.write_text(text)
    partial.rename(path)


def main(arguments: list[str] | None = None) -> int:
    settings = Settings.from_environment()
    choices = list(PROCESSES)
    parser = argparse.ArgumentParser(prog="python -m dev.images.build", description="Build and push changed images.")
    parser.add_argument("names", nargs="*", help=f"images to build (default: all): {', '.join(choices)}")
    parser.add_argument("--tag-file", type=Path, default=settings.cache / "tags.json", help="where references go")
    parser.add_argument("--values-file", type=Path, default=ROOT / "out" / "images.yaml", help="the same for helm")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(choices))
    if unknown:
        parser.error(f"no image is called {', '.join(unknown)}; there are {', '.join(choices)}")
    names, clock = tuple(options.names or choices), Clock()
    try:
        with _alone(settings.cache, clock), tempfile.TemporaryDirectory() as folder:
            sources = Path(folder)
            contents.snapshot(ROOT, with_parents(names), sources)
            jobs = plan(settings, names, sources)
            todo = missing(settings, jobs, names)
            if todo:
                build_all(settings, todo, jobs, sources, clock)
            tags = write_tags(options.tag_file, [job for job in jobs if job.image.name in names])
            write_values(options.values_file, tags)
    except (
        ImagesError,
        contents.MissingInputError,
        registry.RegistryError,
        base.BaseImageError,
        BuildahError,
    ) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    for job in jobs:
        if job.image.name in names:
            clock.say(f"{job.image.name}: {job.remote}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
