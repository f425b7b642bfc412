"""Reading a secret from a file: one line of text, never repeated in a message or a log."""

from pathlib import Path

from pydantic import SecretStr

from serving.yaml_file import FileError, Problem

LARGEST = 65_536


def read_secret(path: Path) -> SecretStr:
    """The secret in the file at `path`, without surrounding white space. Raises FileError, which does not repeat it."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
        text = raw.decode("utf-8").strip()
    except FileNotFoundError:
        raise FileError([Problem(str(path), 0, "", "there is no such file; a secret was expected in it")]) from None
    except UnicodeDecodeError:
        raise FileError([Problem(str(path), 0, "", "is not UTF-8 text; a secret was expected in it")]) from None
    except OSError as refused:
        raise FileError([Problem(str(path), 0, "", f"cannot be read: {refused.strerror}")]) from None
    if not text:
        raise FileError([Problem(str(path), 0, "", "is empty; a secret was expected in it")])
    if len(raw) > LARGEST or any(not character.isprintable() for character in text):
        raise FileError([Problem(str(path), 0, "", "does not hold one line of text; a secret was expected in it")])
    return SecretStr(text)
