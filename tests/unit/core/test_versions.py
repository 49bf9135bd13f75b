import pytest

from openclaw_core.versions import BASE, Manifest, ManifestFile, VersionFormatError, WeightVersion, directory

MANIFEST = Manifest(
    number=7, trainer_epoch=1, step=7, files=(ManifestFile(name="model.safetensors", size=3, sha256="ab" * 32),)
)


def test_version_text_survives_a_round_trip() -> None:
    assert WeightVersion.parse("12-0a1b2c3d") == WeightVersion(number=12, digest8="0a1b2c3d")
    assert str(WeightVersion.parse("12-0a1b2c3d")) == "12-0a1b2c3d"


@pytest.mark.parametrize("text", ["", "default", "7", "7-xyz", "-1-0a1b2c3d", "7-0A1B2C3D", "7-0a1b2c3d0"])
def test_garbled_version_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(VersionFormatError, match="is not <number>-<8 hex digits>"):
        WeightVersion.parse(text)


def test_manifest_digest_changes_with_any_file() -> None:
    other = MANIFEST.model_copy(update={"files": (ManifestFile(name="model.safetensors", size=4, sha256="ab" * 32),)})
    assert MANIFEST.digest() != other.digest()
    assert MANIFEST.version().number == 7
    assert MANIFEST.digest().startswith(MANIFEST.version().digest8)


def test_directories_of_base_and_versions() -> None:
    assert directory(BASE) == "base"
    assert directory(WeightVersion(number=3, digest8="0a1b2c3d")) == "v3"
