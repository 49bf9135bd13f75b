"""What `kubectl get`, `get -o wide` and `describe` say of a training at each stage of its life, as whole texts.

    blocked ─▶ running ─▶ paused for a sync ─▶ synced ─▶ edited to an image that is not there ─▶ suspended

The texts stand in tests/cluster/look/<stage>.txt, volatile words replaced (names of pods, ages, times, milliseconds).
`OPENCLAW_WRITE_LOOK=1` writes them anew: read the difference before it is committed.
"""

import os
import re
import time
from pathlib import Path

import pytest

from openclaw_core import names
from openclaw_core.leases import render_published
from openclaw_core.versions import WeightVersion
from tests.cluster.lab import Lab, training, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

LOOK = Path(__file__).with_name("look")
SLOW_DIGEST = "64" + "abcdef" + "0" * 56
"""A stand-in engine takes 10 s for a version whose digest begins so."""
_VOLATILE = (
    (re.compile(r"\b(look-[a-z]+)-[a-f0-9]{7,10}-[a-z0-9]{5}\b"), r"\1-<pod>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"\b\d+(\.\d+)? ms\b"), "<n> ms"),
    (re.compile(r'Back-off pulling image "[^"]+": ErrImagePull: '), ""),
    (re.compile(r"(Phase: +)(serving|syncing|loading)"), r"\1<engine's>"),
    (re.compile(r"\b(hold|gateways|engines|release) \d+(?=[,)])"), r"\1 <n>"),
    (re.compile(r"(Pause Ms: +)\d+(\.\d+)?"), r"\1<n>"),
    (re.compile(r"(Observed Generation): +\d+"), r"\1: <n>"),
)
_EVENT = re.compile(r"^  (Normal|Warning) +(\w+) +\S.*?  +(openclaw-operator\S*) +(.*)$")
_RACY = re.compile(r"^  Normal +(AllPodsReady|RollingOut) ")
_SPACES = re.compile(r"(?<=\S) {2,}(?=\S)")
SETTLED_SEC = 8


def look(lab: Lab) -> str:
    """The three commands and what they print, without what differs from run to run."""
    described = lab.run("describe", "oct", "look")
    texts = {
        "get oct look": _table(lab.run("get", "oct", "look")),
        "get oct look -o wide": _table(lab.run("get", "oct", "look", "-o", "wide")),
        "describe oct look   # from Status on": _description(described[described.index("\nStatus:") + 1 :]),
    }
    text = "\n".join(f"$ kubectl {command}\n{shown}" for command, shown in texts.items())
    text = text.replace(lab.namespace, "<namespace>")
    for pattern, words in _VOLATILE:
        text = pattern.sub(words, text)
    return text


def _table(text: str) -> str:
    """kubectl's columns, an age replaced, each as wide as its own words; an empty cell stays to be seen."""
    header, row = text.splitlines()
    starts = [match.start() for match in re.finditer(r"\S+", header)]
    ends = [*starts[1:], max(len(header), len(row))]
    cells = [(header[a:b].strip(), row[a:b].strip()) for a, b in zip(starts, ends, strict=True)]
    shown = [(name, "<age>" if name == "AGE" else value or "-") for name, value in cells]
    widths = [min(max(map(len, cell)), 12) for cell in shown]
    lines = (
        "   ".join(word.ljust(width) for word, width in zip(line, widths, strict=True))
        for line in zip(*shown, strict=True)
    )
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _description(text: str) -> str:
    """Spaces squeezed; of the events, each once and sorted, those that depend on which pod was ready first left out."""
    lines = [_SPACES.sub("  ", _EVENT.sub(r"  \1  \2  \4", line).rstrip()) for line in text.splitlines()]
    first = lines.index("Events:") + 3
    events = sorted({line for line in lines[first:] if not _RACY.match(line)})
    return "\n".join([*lines[:first], *events]) + "\n"


def check(lab: Lab, stage: str) -> None:
    """The same text as is kept, soon: status and events are written one after the other."""
    kept, now = LOOK / f"{stage}.txt", ""
    if os.environ.get("OPENCLAW_WRITE_LOOK"):
        LOOK.mkdir(exist_ok=True)
        kept.write_text(settled(lab) if stage != "paused" else look(lab))
    wanted = kept.read_text()

    def same() -> bool:
        nonlocal now
        now = look(lab)
        return now == wanted

    try:
        until(f"the look of a training that is {stage}", same, 30)
    except AssertionError:
        assert now == wanted  # pytest shows the difference


def settled(lab: Lab) -> str:
    """What has not changed for SETTLED_SEC."""
    text, since = look(lab), time.monotonic()
    while time.monotonic() - since < SETTLED_SEC:
        time.sleep(1)
        if (now := look(lab)) != text:
            text, since = now, time.monotonic()
    return text


API = {"baseUrl": "http://judge.invalid/v1", "apiKeySecretRef": {"name": "judge-key", "key": "key"}}


@pytest.fixture(scope="module")
def life(lab: Lab) -> Lab:
    """A training whose judge's key does not exist yet."""
    lab.apply(training("look", api=API))
    return lab


def test_training_without_its_key_names_the_key_and_the_fix(life: Lab) -> None:
    life.until_phase("look", "Blocked")
    until("all but the judge run", lambda: _ready(life, "serving") and _ready(life, "trainer"), 60)
    check(life, "blocked")


def _ready(lab: Lab, component: str) -> bool:
    return bool(lab.status("look").get(component, {}).get("ready") == 1)


def test_running_training_shows_what_it_serves(life: Lab) -> None:
    life.secret("judge-key", key="sk-real-0123")
    life.until_phase("look", "Running")
    check(life, "running")


def test_training_in_a_sync_says_that_submissions_are_paused(life: Lab) -> None:
    version = WeightVersion.of(1, SLOW_DIGEST)
    life.patch("lease", "look-published", render_published(version, SLOW_DIGEST, 1))
    until("a hold", lambda: life.condition("look", "WeightSyncPaused").get("status") == "True", 30, every=0.05)
    check(life, "paused")
    until("it is served", lambda: life.status("look")["weights"].get("serving") == str(version), 30)


def test_training_after_a_sync_shows_its_version_and_pause(life: Lab) -> None:
    check(life, "synced")


def test_edited_training_names_the_image_it_cannot_pull(life: Lab) -> None:
    body = training("look", api=API)
    body["spec"]["policyServing"]["podTemplate"]["spec"]["containers"][0]["image"] = "127.0.0.1:5055/no-such-image:1"
    life.apply(body)
    life.until_phase("look", "Starting")
    check(life, "starting")


def test_suspended_training_says_so(life: Lab) -> None:
    life.patch(names.PLURAL, "look", {"spec": {"suspend": True}})
    life.until_phase("look", "Suspended")
    check(life, "suspended")
