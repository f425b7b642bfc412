"""The settings worth a look: every cause has its entry, and each setting is one that vLLM has."""

import importlib.util
from pathlib import Path

import pytest

from agent.checkup.settings import Setting, load_settings_to_look_at
from agent.diagnosis.catalogue import load_catalogue
from serving.yaml_file import FileError

CATALOGUE = load_catalogue()
SHIPPED = load_settings_to_look_at(CATALOGUE)
ALL = sorted({(setting.setting, setting.source) for settings in SHIPPED.values() for setting in settings})


def _vllm() -> Path:
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        pytest.skip("vLLM is not installed here")
    return Path(found.origin).parent


def test_every_cause_of_the_catalogue_has_an_entry() -> None:
    assert set(SHIPPED) == CATALOGUE.names


def test_no_cause_names_a_setting_twice() -> None:
    for settings in SHIPPED.values():
        names = [setting.setting for setting in settings]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize(("setting", "source"), ALL)
def test_vllm_has_the_setting_and_the_file_that_is_named_as_its_source(setting: str, source: str) -> None:
    root = _vllm()
    where = [root / "envs.py"] if setting.startswith("VLLM_") else [root / "engine" / "arg_utils.py"]
    where += sorted((root / "entrypoints").rglob("*.py")) if setting.startswith("--") else []
    assert any(f'"{setting}"' in file.read_text() or f"{setting}:" in file.read_text() for file in where)
    if source.startswith("vllm/"):
        assert (root.parent / source).exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("causes: {engine.hanged: []}", "engine.hanged"),
        ("causes: {engine.hung: [{setting: max-num-seqs, look: is long enough, source: vllm/envs.py}]}", "setting"),
        ("causes: {engine.hung: [{setting: --x, look: short, source: vllm/envs.py}]}", "look"),
        ("causes: {engine.hung: [{setting: --x, look: is long enough, source: somewhere}]}", "source"),
        ("causes: {engine.hung: [{setting: --x, look: is long enough}]}", "source: is missing"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(FileError) as refused:
        load_settings_to_look_at(CATALOGUE, file)
    assert f"{file}:1" in str(refused.value)
    assert says in str(refused.value)


def test_a_setting_is_told_whole() -> None:
    assert all(isinstance(one, Setting) and one.look and one.source for settings in SHIPPED.values() for one in settings)
