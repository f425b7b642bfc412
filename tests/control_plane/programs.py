"""The programs of a control plane: where they are found, and how those of Kubernetes are built from source.

`make control-plane` builds what is missing (ten minutes on two cores, once). Binaries lie outside the
checkout, in $KUBEBUILDER_ASSETS if that is set, else in ${XDG_CACHE_HOME:-~/.cache}/fleetwarden/kubernetes-VERSION. Tests
never build anything.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.clock import SystemClock

MODULE = Path(__file__).parent / "binaries"
SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
BUILT = (*SERVERS, "kubectl")  # kubectl costs little after the others, and a person wants it
HOW = (
    "`make control-plane` builds the programs of Kubernetes (needs Go; ten minutes, once), `apt-get install etcd-server` "
    "brings etcd; or set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver, kube-controller-manager, kube-scheduler"
)
SAY_EVERY_S = 20.0


class MissingProgramsError(Exception):
    """A program of the control plane is not there; the message names it and says how to get it."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Where each program lies. `kubectl` is for people only."""

    etcd: Path
    api_server: Path
    controller_manager: Path
    scheduler: Path
    kubectl: Path | None = None


def version() -> str:
    """The version of Kubernetes that the tool module asks for, as in v1.36.3."""
    found = re.search(
        r"^\s*(?:require )?k8s\.io/kubernetes (v\d+\.\d+\.\d+)\b", (MODULE / "go.mod").read_text(), re.MULTILINE
    )
    if found is None:
        raise MissingProgramsError(f"{MODULE / 'go.mod'} requires no k8s.io/kubernetes")
    return found[1]


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Where built programs lie. Not created here. A relative XDG_CACHE_HOME is ignored, as its specification asks."""
    given = environment.get("XDG_CACHE_HOME", "")
    base = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
    return base / "fleetwarden" / f"kubernetes-{version()}"


def find(environment: Mapping[str, str] = os.environ) -> Programs:
    """All programs. Raises MissingProgramsError.

    Those of Kubernetes come from one folder, so that versions are never mixed; etcd may also be the system's.
    """
    assets = environment.get("KUBEBUILDER_ASSETS")
    directory = Path(assets) if assets else cache_directory(environment)
    missing = [f"{name} (not in {directory})" for name in SERVERS if not _runs(directory / name)]
    etcd = directory / "etcd" if _runs(directory / "etcd") else shutil.which("etcd", path=environment.get("PATH"))
    if etcd is None:
        missing.append(f"etcd (neither in {directory} nor on the PATH)")
    if etcd is None or missing:
        raise MissingProgramsError(f"missing: {', '.join(missing)}. {HOW}")
    kubectl = directory / "kubectl"
    api_server, manager, scheduler = (directory / name for name in SERVERS)
    return Programs(Path(etcd), api_server, manager, scheduler, kubectl if _runs(kubectl) else None)


def build(directory: Path) -> None:
    """Build what `directory` lacks. Each program appears there whole or not at all. Raises MissingProgramsError."""
    directory.mkdir(parents=True, exist_ok=True)
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    with (directory / ".building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second builder waits, then finds everything there
        for name in BUILT:
            if _runs(directory / name):
                say(f"{name} is there")
            elif go is None:
                raise MissingProgramsError(f"there is no go to build {name} with. {HOW}")
            else:
                _build_one(go, name, directory)


def say(what: str) -> None:
    """One line for the person who waits."""
    print(what, flush=True)  # noqa: T201 - a command of its own


def _build_one(go: str, name: str, directory: Path) -> None:
    major, minor, _ = version().removeprefix("v").split(".")
    stamps = {"gitVersion": version(), "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamps.items())])
    partial = directory / f".{name}.{os.getpid()}"
    command = [go, "build", "-v", "-trimpath", "-ldflags", flags, "-o", str(partial), f"k8s.io/kubernetes/cmd/{name}"]
    clock = SystemClock()
    began = clock.monotonic()
    say(f"building {name} {version()} into {directory}")
    try:
        with subprocess.Popen(
            command, cwd=MODULE, env={**os.environ, "CGO_ENABLED": "0"}, stderr=subprocess.PIPE, text=True
        ) as building:
            lines = _follow(building, lambda count: say(f"  {name}: {count} packages, {clock.monotonic() - began:.0f} s"))
        if building.returncode != 0:
            raise MissingProgramsError(f"go could not build {name}:\n" + "\n".join(lines[-30:]))
        partial.replace(directory / name)
    finally:
        partial.unlink(missing_ok=True)
    say(f"built {name} in {clock.monotonic() - began:.0f} s")


def _follow(building: "subprocess.Popen[str]", tell: Callable[[int], None]) -> list[str]:
    """The lines that go writes, one for each package that it compiles, and its complaints; their count is told at times."""
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(map(str.rstrip, building.stderr or ())), daemon=True)
    reader.start()
    while reader.is_alive():
        reader.join(SAY_EVERY_S)
        if reader.is_alive():
            tell(len(lines))
    return lines


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def main() -> int:
    """Exit status: 0 everything is there, 1 something is missing."""
    try:
        build(cache_directory())
        programs = find({**os.environ, "KUBEBUILDER_ASSETS": str(cache_directory())})
    except MissingProgramsError as missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    say(f"the control plane is complete: {programs.api_server.parent}, etcd at {programs.etcd}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
