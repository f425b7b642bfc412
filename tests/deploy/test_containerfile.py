"""What can be told of the image without building it: its file names what is there, and agrees with the chart."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
CONTAINERFILE = (ROOT / "deploy" / "Containerfile").read_text()
IGNORED = (ROOT / ".containerignore").read_text().splitlines()
FINAL = CONTAINERFILE.rpartition("\nFROM ")[2]


def test_everything_that_is_copied_exists_and_is_not_ignored() -> None:
    sources = [
        source.rstrip("/")
        for line in re.findall(r"^COPY (?!--from)(.+)$", CONTAINERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
    let_in = [line.removeprefix("!") for line in IGNORED if line.startswith("!")]
    assert [source for source in sources if not any(source.startswith(one) for one in let_in)] == []


def test_every_package_of_the_wheel_is_copied() -> None:
    packages = re.findall(r"packages = \[(.+)\]", (ROOT / "pyproject.toml").read_text())[0].replace('"', "").split(", ")
    assert [package for package in packages if f"COPY {package} {package}" not in CONTAINERFILE] == []


def test_the_last_stage_installs_nothing_and_runs_as_the_user_of_the_chart() -> None:
    assert "install" not in FINAL.replace("uninstall", "")
    user = re.search(r"^USER (\d+):(\d+)$", FINAL, re.MULTILINE)
    assert user is not None
    pod = (ROOT / "deploy" / "helm" / "fleetwarden" / "templates" / "_pod.tpl").read_text()
    security = yaml.safe_load(pod.partition('"fleetwarden.podSecurity" -}}\n')[2].partition("{{- end")[0])
    assert (security["runAsUser"], security["runAsGroup"]) == (int(user[1]), int(user[2]))


def test_every_package_comes_by_hash_in_the_version_that_was_tested() -> None:
    def pins(name: str) -> set[str]:
        text = (ROOT / "requirements" / name).read_text()
        assert text.count("==") <= text.count("--hash=sha256:")
        return set(re.findall(r"^([a-z0-9_.-]+(?:\[[a-z,]+\])?==[^ ;]+)", text, re.MULTILINE))

    assert pins("image.txt") <= pins("dev.txt")
    assert {"kubernetes", "psycopg-binary"} <= {pin.partition("==")[0] for pin in pins("image.txt")}
    assert pins("build.txt")
