"""buildah, in a storage of its own: build, push, prune. Nothing here knows which images there are."""

import hashlib
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_TAIL = 12
"""Lines of a failed command's output shown; the rest is in its log."""


class BuildahError(Exception):
    """A buildah command failed; the message ends with the last lines it said."""


class Buildah:
    """One image storage under `folder`. Commands log to `folder/logs`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logs = folder / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        run = f"/run/openclaw-images-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"
        self._options = ["--root", str(folder / "storage"), "--runroot", run, "--storage-driver", "overlay"]

    def exists(self, reference: str) -> bool:
        done = self._quiet("images", "--quiet", reference, check=False)
        return done.returncode == 0 and bool(done.stdout.strip())

    def import_root(self, archive: Path, reference: str) -> None:
        """Make an image of one layer from a tar of a root file system."""
        container = self._quiet("from", "scratch").stdout.strip()
        try:
            self._quiet("add", container, str(archive), "/")
            self._quiet("commit", "--quiet", container, reference)
        finally:
            self._quiet("rm", container, check=False)

    def build(
        self, dockerfile: str, reference: str, context: Path, arguments: Sequence[str], say: Callable[[str], None]
    ) -> None:
        """Build one Dockerfile layer by layer; `say` gets a line per instruction."""
        command = [
            "bud",
            "--isolation",
            "chroot",
            "--layers",
            *arguments,
            "--file",
            str(context / dockerfile),
            "--tag",
            reference,
        ]
        self._logged(reference, [*command, str(context)], say)

    def push(self, reference: str, target: str, *, tls: bool) -> None:
        """Push with zstd, several times faster than gzip and as small."""
        command = ["push", "--compression-format", "zstd", "--quiet", f"--tls-verify={'true' if tls else 'false'}"]
        self._logged(f"push-{reference}", [*command, reference, f"docker://{target}"], lambda _: None)

    def pull(self, source: str, reference: str, *, tls: bool) -> None:
        """Fetch an image that was built here once and pruned since; far quicker than building it again."""
        command = ["pull", "--quiet", f"--tls-verify={'true' if tls else 'false'}", f"docker://{source}"]
        self._logged(f"pull-{reference}", command, lambda _: None)
        self._quiet("tag", source, reference)

    def remove_other_tags(self, repository: str, keep: str) -> None:
        """Untag older builds of one image; their layers go with the next prune."""
        listed = self._quiet("images", "--format", "{{.Name}}:{{.Tag}}", check=False).stdout.split()
        for reference in listed:
            if reference.startswith(f"{repository}:") and reference != keep:
                self._quiet("rmi", reference, check=False)

    def prune(self, *, everything: bool) -> None:
        """Free disk: layers of no image, or all images (they are in the registry)."""
        self._quiet("rmi", *(["--all", "--force"] if everything else ["--prune", "--force"]), check=False)

    def _quiet(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(["buildah", *self._options, *command], capture_output=True, text=True)
        if check and done.returncode != 0:
            raise BuildahError(f"buildah {command[0]} failed: {done.stderr.strip()[-600:]}")
        return done

    def _logged(self, name: str, command: Sequence[str], say: Callable[[str], None]) -> None:
        log = self._logs / f"{name.replace('/', '_').replace(':', '_')}.log"
        full = ["buildah", *self._options, *command]
        lines: list[str] = []
        with (
            log.open("w") as file,
            subprocess.Popen(full, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                file.write(f"{time.strftime('%H:%M:%S')} {line}")
                lines.append(line.rstrip())
                if " STEP " in f" {line}":
                    say(" ".join(line.split())[:100])
        if process.returncode != 0:
            tail = "\n".join(lines[-_TAIL:])
            raise BuildahError(f"buildah {command[0]} of {name} failed (log: {log}):\n{tail}")
