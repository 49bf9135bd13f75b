"""The locks fit each other: engine and trainer share torch's layer only while their pins are equal."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
IMAGE_LOCKS = ("torch", "engine", "trainer", "gateway", "judge", "environment", "operator", "sglang", "uv")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)(?:\s*;\s*([^\\]*))?")


def pins(name: str, python: str = "3.13") -> dict[str, str]:
    """Versions a lock installs on Linux with this Python, by distribution."""
    found: dict[str, str] = {}
    for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines():
        if (match := _PIN.match(line)) and _applies(match.group(3), python):
            found[match.group(1).lower()] = match.group(2)
    return found


def _applies(marker: str | None, python: str) -> bool:
    from packaging.markers import Marker

    if not marker:
        return True
    environment = {
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
        "platform_machine": "x86_64",
        "platform_system": "Linux",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
    }
    return Marker(marker).evaluate(environment)


@pytest.mark.parametrize("child", ["engine", "trainer"])
def test_images_on_torch_install_exactly_its_pins(child: str) -> None:
    base, lock = pins("torch"), pins(child)
    assert {name: lock.get(name) for name in base} == base


def test_engine_and_trainer_agree_on_every_package_both_have() -> None:
    engine, trainer = pins("engine"), pins("trainer")
    both = engine.keys() & trainer.keys()
    assert {name: engine[name] for name in both} == {name: trainer[name] for name in both}


def test_torch_and_transformers_are_the_ones_sglang_pins() -> None:
    assert pins("torch")["torch"] == "2.14.1"
    assert pins("torch")["transformers"] == "5.19.0"
    assert pins("sglang") == {"sglang": "0.5.23"}


def test_tests_use_the_torch_of_the_images() -> None:
    development, base = pins("dev"), pins("torch")
    assert (development["torch"], development["transformers"]) == (base["torch"], base["transformers"])


@pytest.mark.parametrize("name", IMAGE_LOCKS)
def test_every_pin_has_a_hash_and_no_lock_names_a_registry(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert blocks and all("--hash=sha256:" in block for block in blocks)
    assert "index-url" not in text and "://" not in text
