"""Which image each component runs: told by the chart through the operator's environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from openclaw_core import names

_PREFIX = "OPENCLAW_IMAGE_"
_BORROWED = {names.JUDGE_MODEL: names.ENGINE}


class MissingImagesError(ValueError):
    """Environment variables that name an image are missing."""


@dataclass(frozen=True)
class Images:
    """Image reference by component, and the pull policy of all of them."""

    by_component: Mapping[str, str]
    pull_policy: str = "IfNotPresent"

    def of(self, component: str) -> str:
        return self.by_component[_BORROWED.get(component, component)]


def from_environment(environment: Mapping[str, str] | None = None) -> Images:
    """Read OPENCLAW_IMAGE_<COMPONENT>; MissingImagesError names every absent one."""
    source = os.environ if environment is None else environment
    found = {component: source.get(_PREFIX + component.upper(), "") for component in names.COMPONENTS}
    missing = [_PREFIX + component.upper() for component, image in found.items() if not image]
    if missing:
        raise MissingImagesError(f"set {', '.join(missing)} to the images of the components")
    return Images(found, source.get("OPENCLAW_IMAGE_PULL_POLICY", "IfNotPresent"))
