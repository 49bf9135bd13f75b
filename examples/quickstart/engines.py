"""What the engines are and which weights they really hold, as they say themselves. Pure: fed by `observation`."""

from dataclasses import dataclass, field

SGLANG_VERSION = "0.5.23"


@dataclass
class EngineLog:
    """Every engine's `/server_info` version, and the checksum of its weights for each version it served."""

    sglang: dict[str, str] = field(default_factory=dict)
    """Pod → version SGLang's /server_info reported."""
    checksums: dict[str, dict[str, str]] = field(default_factory=dict)
    """Pod → weight version → checksum over the engine's memory."""
    contradictions: list[str] = field(default_factory=list)

    def server_info(self, pod: str, version: str) -> None:
        self.sglang[pod] = version

    def weights(self, pod: str, version: str, checksum: str) -> None:
        """One reading. The same version with another checksum is a contradiction."""
        known = self.checksums.setdefault(pod, {})
        if known.setdefault(version, checksum) != checksum:
            self.contradictions.append(f"{pod} served {version} with two different checksums")

    def versions(self) -> list[str]:
        """Weight versions any engine served, in order; the base model is not one of them."""
        seen = {version for known in self.checksums.values() for version in known}
        return sorted((v for v in seen if not v.startswith("0-")), key=lambda version: int(version.split("-")[0]))

    def faults(self) -> list[str]:
        """Why the engines are not what the demo claims; empty when they are."""
        faults = sorted(set(self.contradictions))
        if not self.sglang:
            faults.append("no engine's /server_info was read")
        for pod, version in self.sglang.items():
            if version != SGLANG_VERSION:
                faults.append(f"{pod} runs SGLang {version}, not {SGLANG_VERSION}")
        for pod, known in self.checksums.items():
            if len(set(known.values())) != len(known):
                faults.append(f"{pod} served {len(known)} versions with {len(set(known.values()))} different weights")
        return faults
