"""What `make images` decides: tags from contents, what is missing, what a mistake is told."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from dev.images import base, build, build_secrets, catalogue, contents, registry
from dev.images.build import Settings
from dev.images.catalogue import BY_NAME, PROCESSES, Image

GATEWAY = Image("gateway", "Dockerfile", ("lock.txt", "package"))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in {
        "Dockerfile": "FROM x",
        ".dockerignore": "*",
        "lock.txt": "a==1",
        "package/main.py": "x = 1",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_tag_is_the_same_for_the_same_contents(checkout: Path) -> None:
    assert contents.tag(checkout, GATEWAY, "base") == contents.tag(checkout, GATEWAY, "base")


@pytest.mark.parametrize("name", ["Dockerfile", "lock.txt", "package/main.py", "package/new.py", ".dockerignore"])
def test_tag_follows_every_input(checkout: Path, name: str) -> None:
    before = contents.tag(checkout, GATEWAY, "base")
    (checkout / name).write_text("changed")
    assert contents.tag(checkout, GATEWAY, "base") != before


def test_tag_follows_the_base_and_a_renamed_file(checkout: Path) -> None:
    before = contents.tag(checkout, GATEWAY, "base")
    assert contents.tag(checkout, GATEWAY, "other") != before
    (checkout / "package" / "main.py").rename(checkout / "package" / "moved.py")
    assert contents.tag(checkout, GATEWAY, "base") != before


def test_tag_ignores_caches_and_foreign_files(checkout: Path) -> None:
    before = contents.tag(checkout, GATEWAY, "base")
    (checkout / "package" / "__pycache__").mkdir()
    (checkout / "package" / "__pycache__" / "main.cpython-313.pyc").write_bytes(b"x")
    (checkout / "README.md").write_text("x")
    assert contents.tag(checkout, GATEWAY, "base") == before


def test_snapshot_has_the_same_tag_and_no_clock(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("snapshot")
    (checkout / "README.md").write_text("x")
    contents.snapshot(checkout, [GATEWAY], folder)
    assert contents.tag(folder, GATEWAY, "base") == contents.tag(checkout, GATEWAY, "base")
    assert not (folder / "README.md").exists()
    assert len({path.stat().st_mtime for path in folder.rglob("*")}) == 1


def test_missing_input_is_named(checkout: Path) -> None:
    (checkout / "lock.txt").unlink()
    with pytest.raises(contents.MissingInputError, match=r"lock\.txt is missing"):
        contents.tag(checkout, GATEWAY, "base")


def test_child_of_torch_changes_with_torch(monkeypatch: pytest.MonkeyPatch, checkout: Path) -> None:
    child = Image("engine", "Dockerfile", ("lock.txt",), parent="torch")
    monkeypatch.setitem(BY_NAME, "torch", Image("torch", "Dockerfile", ("package",)))
    before = contents.tag(checkout, child, "base")
    (checkout / "package" / "main.py").write_text("y = 2")
    assert contents.tag(checkout, child, "base") != before


def test_wanting_the_engine_plans_torch_before_it() -> None:
    assert [image.name for image in catalogue.with_parents(("engine",))] == ["torch", "sglang", "engine"]
    assert [image.name for image in catalogue.with_parents(("judge",))] == ["judge"]


def test_every_image_of_this_checkout_has_its_inputs() -> None:
    tags = {image.name: contents.tag(build.ROOT, image, "base") for image in catalogue.IMAGES}
    assert len(set(tags.values())) == len(catalogue.IMAGES)


@contextmanager
def serving(tags: set[str]) -> Iterator[str]:
    """A registry that has exactly these `name:tag`s; gives its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            name, _, tag = self.path.removeprefix("/v2/").partition("/manifests/")
            self.send_response(200 if f"{name}:{tag}" in tags else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def names_of(settings: Settings, wanted: tuple[str, ...], pushed: tuple[str, ...]) -> list[str]:
    jobs = build.plan(settings, wanted)
    have = {job.remote.split("/", 1)[1] for job in jobs if job.image.name in pushed}
    with serving(have) as address:
        there = Settings(address, settings.base_image, settings.cache)
        return [job.image.name for job in build.missing(there, build.plan(there, wanted), wanted)]


def test_only_what_the_registry_lacks_is_built(tmp_path: Path) -> None:
    settings = Settings("127.0.0.1:1", None, tmp_path)
    assert names_of(settings, ("engine", "judge"), pushed=("engine",)) == ["judge"]
    assert names_of(settings, ("engine", "judge"), pushed=("sglang", "judge")) == ["engine"]
    assert names_of(settings, ("engine", "judge"), pushed=("torch", "judge")) == ["sglang", "engine"]
    assert names_of(settings, ("engine", "judge"), pushed=("judge",)) == ["torch", "sglang", "engine"]
    assert names_of(settings, ("engine",), pushed=("engine",)) == []


def test_absent_registry_is_told_with_the_way_out(tmp_path: Path) -> None:
    settings = Settings("127.0.0.1:1", None, tmp_path)
    with pytest.raises(registry.RegistryError, match="make cluster-up"):
        build.missing(settings, build.plan(settings, ("judge",)), ("judge",))


def test_given_base_image_is_part_of_every_tag(tmp_path: Path) -> None:
    ours = build.plan(Settings("r", None, tmp_path), ("judge",))[0].remote
    public = build.plan(Settings("r", "docker.io/library/python:3.13-slim-trixie", tmp_path), ("judge",))[0].remote
    assert ours != public
    assert base.key("x") == "x"


def test_tags_file_keeps_images_not_built_this_time(tmp_path: Path) -> None:
    settings, path = Settings("r:1", None, tmp_path), tmp_path / "tags.json"
    build.write_tags(path, build.plan(settings, ("judge",)))
    build.write_tags(path, build.plan(settings, ("engine",)))
    tags = json.loads(path.read_text())
    assert set(tags) == {"judge", "engine"}
    assert tags["judge"].startswith("r:1/openclaw-judge:")


def test_values_file_gives_the_chart_every_reference_it_takes(tmp_path: Path) -> None:
    settings, path = Settings("r:1/team", None, tmp_path), tmp_path / "out" / "images.yaml"
    tags = build.write_tags(tmp_path / "tags.json", build.plan(settings, tuple(PROCESSES)))
    build.write_values(path, tags)
    values = yaml.safe_load(path.read_text())
    defaults = yaml.safe_load((build.ROOT / "charts" / "openclaw-rl" / "values.yaml").read_text())["images"]
    assert set(values["images"]) == set(defaults) - {"registry", "tag", "pullPolicy", "pullSecrets"}
    assert values["images"]["gateway"].startswith("r:1/team/openclaw-gateway:")


def test_unknown_image_is_refused_with_the_choices(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build.main(["torch"])
    assert "there are engine, trainer, " in capsys.readouterr().err


def test_registry_settings_reach_both_installers_and_nothing_else_does() -> None:
    environment = {
        "UV_INDEX_URL": "https://u/simple",
        "HTTPS_PROXY": "http://p:1",
        "OPENCLAW_TOKEN": "t",
        "HOME": "/root",
    }
    lines = build_secrets.registry_exports(environment, "https://mirror/simple?a b")
    assert "export UV_INDEX_URL=https://u/simple\n" in lines
    assert "export PIP_INDEX_URL='https://mirror/simple?a b'\n" in lines
    assert "UV_DEFAULT_INDEX" not in lines
    assert "OPENCLAW" not in lines and "HOME" not in lines


def test_pips_index_is_told_to_uv() -> None:
    assert "export UV_DEFAULT_INDEX=https://m/simple\n" in build_secrets.registry_exports({}, "https://m/simple")


@pytest.mark.parametrize("image", catalogue.IMAGES, ids=lambda image: image.name)
def test_dockerfile_takes_its_base_as_argument_and_drops_root(image: Image) -> None:
    text = (build.ROOT / image.dockerfile).read_text()
    argument = f"{image.parent.upper()}_IMAGE" if image.parent else "BASE_IMAGE"
    assert f"ARG {argument}=" in text and f"FROM ${{{argument}}}" in text
    assert image.is_base or "\nUSER 10001:10001\n" in text
    copied = [
        word
        for line in text.splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    ]
    assert set(copied) == set(image.inputs)
