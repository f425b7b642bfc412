"""Helm: where it is found, and how it is built from source.

`make helm` builds it (some minutes, once) into ${XDG_CACHE_HOME:-~/.cache}/fleetwarden/helm-VERSION. Tests never build
anything; any helm of the same major version on the PATH serves too.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from control_plane.programs import MissingProgramsError, cache_directory, say

MODULE = Path(__file__).parent / "binaries"
CHART = Path(__file__).parents[2] / "deploy" / "helm" / "fleetwarden"
HOW = "`make helm` builds it (needs Go; some minutes, once)"


class HelmError(Exception):
    """Helm refused; the message is what it wrote."""


def version() -> str:
    """The version that the tool module asks for, as in v4.3.1."""
    found = re.search(
        r"^\s*(?:require )?helm\.sh/helm/v\d+ (v\d+\.\d+\.\d+)\b", (MODULE / "go.mod").read_text(), re.MULTILINE
    )
    if found is None:
        raise MissingProgramsError(f"{MODULE / 'go.mod'} requires no helm")
    return found[1]


def built(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the built program lies, or would."""
    return cache_directory(environment).parent / f"helm-{version()}" / "helm"


def find(environment: Mapping[str, str] = os.environ) -> Path:
    """The program. Raises MissingProgramsError."""
    own = built(environment)
    if os.access(own, os.X_OK):
        return own
    other = shutil.which("helm", path=environment.get("PATH"))
    if other is not None:
        said = subprocess.run([other, "version", "--short"], capture_output=True, text=True, check=False).stdout
        if said.startswith(version().partition(".")[0] + "."):
            return Path(other)
    raise MissingProgramsError(f"there is no helm {version()} (neither {own} nor on the PATH). {HOW}")


def build() -> None:
    """Build it unless it is there. It appears whole or not at all. Raises MissingProgramsError."""
    target = built()
    if os.access(target, os.X_OK):
        say(f"helm is there: {target}")
        return
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    if go is None:
        raise MissingProgramsError(f"there is no go to build helm with. {HOW}")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".helm.{os.getpid()}")
    flags = f"-s -w -X helm.sh/helm/{version().partition('.')[0]}/internal/version.version={version()}"
    package = f"helm.sh/helm/{version().partition('.')[0]}/cmd/helm"
    say(f"building helm {version()} into {target.parent}")
    try:
        command = [go, "build", "-trimpath", "-ldflags", flags, "-o", str(partial), package]
        done = subprocess.run(command, cwd=MODULE, env={**os.environ, "CGO_ENABLED": "0"}, check=False)
        if done.returncode != 0:
            raise MissingProgramsError("go could not build helm")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    say("built helm")


def run(*arguments: str, environment: Mapping[str, str] | None = None, deadline_s: float = 120.0) -> str:
    """What helm writes to standard output. Raises HelmError with what it complains of."""
    own = {"HELM_CACHE_HOME": "/nonexistent", "HELM_CONFIG_HOME": "/nonexistent", "HELM_DATA_HOME": "/nonexistent"}
    given = {**os.environ, **own, **(environment or {})}
    done = subprocess.run([find(), *arguments], env=given, capture_output=True, text=True, timeout=deadline_s, check=False)
    if done.returncode != 0:
        raise HelmError(done.stderr.strip() or done.stdout.strip())
    return done.stdout


def main() -> int:
    """Exit status: 0 it is there, 1 it could not be built."""
    try:
        build()
    except MissingProgramsError as missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
