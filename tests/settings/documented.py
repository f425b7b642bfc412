"""The fields of a model and of everything inside it, as paths, to hold a document against."""

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Path and field of every leaf and section: `loop.interval`, `engines[].url`, `policy.serving.models.*.share`."""
    for name, info in model.model_fields.items():
        inner = [part for part in _parts(info.annotation) if isinstance(part, type) and issubclass(part, BaseModel)]
        path = f"{prefix}{name}"
        yield path, info
        for below in inner:
            yield from fields(below, f"{path}{_step(info.annotation)}.")


def default(info: FieldInfo) -> str:
    """The default as a document writes it."""
    if info.is_required():
        return "required"
    value = info.default_factory() if info.default_factory is not None else info.default  # type: ignore[call-arg]
    if value is PydanticUndefined or isinstance(value, BaseModel):
        return "see its fields"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        return "empty" if not value else str(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for inner in get_args(annotation):
        yield from _parts(inner)


def _step(annotation: Any) -> str:
    text = str(annotation)
    return "[]" if "list[" in text else ".*" if "dict[" in text else ""
