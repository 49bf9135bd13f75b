"""The target the operator mounts: which version every engine should serve."""

import logging
from pathlib import Path

from pydantic import ValidationError

from openclaw_core.versions import Target, VersionFormatError, WeightVersion

logger = logging.getLogger(__name__)


def read(path: Path) -> WeightVersion | None:
    """The version in `path`. None: no file (nothing was published yet), or one that does not parse (logged)."""
    try:
        return WeightVersion.parse(Target.model_validate_json(path.read_bytes()).version)
    except OSError:
        return None
    except (ValidationError, VersionFormatError) as error:
        logger.error("target file is invalid", extra={"path": str(path), "error": str(error)})
        return None
