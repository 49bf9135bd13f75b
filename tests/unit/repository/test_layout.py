"""The repository's own rules, read off the tracked files."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TEXT = {".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".in", ".json", ".go", ".mod", ".sh", ".tpl", ""}
FORBIDDEN = {
    "a machine path": re.compile(r"/work/(main|shared|\.library)|/root/"),
    "a link out of the repository": re.compile(r"\.\./shared"),
    "a package registry's address": re.compile(
        r"files\.pythonhosted\.org|pypi\.org|proxy\.golang\.org|registry\.npmjs\.org|deb\.debian\.org|index\.crates\.io"
    ),
    "a private key": re.compile(r"BEGIN (RSA |EC )?PRIVATE KEY"),
}
SELF = Path("tests/unit/repository/test_layout.py")


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()]


FILES = tracked()
PYTHON = [file for file in FILES if file.suffix == ".py"]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_contains(what: str) -> None:
    texts = [file for file in FILES if file.suffix in TEXT and file != SELF]
    found = [str(file) for file in texts if FORBIDDEN[what].search((ROOT / file).read_text(errors="replace"))]
    assert found == []


def test_operator_and_image_folders_are_not_packages() -> None:
    roots = {
        Path("operator"),
        *(file.parents[-3] for file in PYTHON if file.parts[0] == "images" and len(file.parts) > 2),
    }
    assert [root for root in roots if (ROOT / root / "__init__.py").exists()] == []


def test_no_grab_bag_modules() -> None:
    bags = {"utils", "util", "helpers", "helper", "misc", "common", "manager", "managers"}
    assert [str(file) for file in PYTHON if file.stem in bags or bags & set(file.parts)] == []


def test_no_python_file_exceeds_600_lines() -> None:
    lengths = {str(file): len((ROOT / file).read_text().splitlines()) for file in PYTHON}
    assert {name: length for name, length in lengths.items() if length > 600} == {}


def test_every_module_of_a_process_says_why_it_exists() -> None:
    members = {"core", "operator", "images", "cli"}
    silent = [
        str(file)
        for file in PYTHON
        if file.parts[0] in members
        and file.name != "__init__.py"
        and not (ROOT / file).read_text().lstrip().startswith(('"""', 'r"""'))
    ]
    assert silent == []


def test_locks_are_hashed() -> None:
    for lock in (ROOT / "requirements").glob("*.txt"):
        pins = [line for line in lock.read_text().splitlines() if re.match(r"^[a-z0-9]", line)]
        assert pins and all(line.endswith("\\") for line in pins), f"{lock.name} has a pin without a hash"
