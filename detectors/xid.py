"""XIDs: NVIDIA's own table of error codes, and the reading of what a driver said.

The table beside this file (xids.csv) is NVIDIA's catalogue of XIDs (https://docs.nvidia.com/deploy/xid-errors, release of
2025-10), reduced to code, name, meaning, NVIDIA's resolution bucket for the immediate action, and that bucket as one of
the actions below. Does not belong here: which events of a fleet are a fault (detectors.gpu_faults).
"""

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from importlib import resources
from types import MappingProxyType


class XidAction(StrEnum):
    """What NVIDIA's table asks for at once."""

    RESTART_APP = "restart_app"
    RESET_GPU = "reset_gpu"
    REBOOT_NODE = "reboot_node"
    IGNORE = "ignore"
    FOLLOW_OTHER = "follow_other"  # goes with another code, whose action counts; alone it is somebody's clean-up
    ANNOUNCED = "announced"  # XID 154: the text says which recovery the driver asks for
    NVLINK = "nvlink"  # XID 74: an error of a link, told by registers
    NVLINK5 = "nvlink5"  # XIDs 144 to 150: the text says whether it is fatal
    CHECK = "check"  # a person: the table asks for mechanics, software or support, or says nothing


@dataclass(frozen=True, slots=True)
class XidEntry:
    """One row of the table. `bucket` is NVIDIA's word for the immediate action."""

    code: int
    name: str
    meaning: str
    bucket: str
    action: XidAction


@dataclass(frozen=True, slots=True)
class Xid:
    """One code that a driver reported, with the rest of its text."""

    code: int
    detail: str


_KERNEL_LINE = re.compile(r"Xid\s*\([^)]*\):\s*(\d{1,5})\b[\s,:]*(.*)", re.IGNORECASE | re.DOTALL)
_EVENT_TEXT = re.compile(r"\s*(?:xid\s*:?\s*)?(\d{1,5})\s*(?:[:,]\s*(.*)|$)", re.IGNORECASE | re.DOTALL)
_ANNOUNCED = re.compile(r"\(\s*(none|gpu reset|node reboot|drain p2p|drain and reset)[^)]*\)", re.IGNORECASE)
_FATAL = re.compile(r"\bfatal\b", re.IGNORECASE)
_REQUIRED: Mapping[str, XidAction] = MappingProxyType(
    {
        "none": XidAction.IGNORE,
        "gpu reset": XidAction.RESET_GPU,
        "drain and reset": XidAction.RESET_GPU,
        "drain p2p": XidAction.CHECK,
        "node reboot": XidAction.REBOOT_NODE,
    }
)


@lru_cache(maxsize=1)
def xid_table() -> Mapping[int, XidEntry]:
    """The shipped table by code."""
    return parse_table(resources.files("detectors").joinpath("xids.csv").read_text("utf-8").splitlines())


def parse_table(lines: Iterable[str]) -> Mapping[int, XidEntry]:
    """Read the table. Raises ValueError, naming the line, for a code that is no number or there twice, or no action."""
    table: dict[int, XidEntry] = {}
    rows = csv.DictReader(lines)
    for row in rows:
        try:
            entry = XidEntry(int(row["code"]), row["name"], row["meaning"], row["bucket"], XidAction(row["action"]))
        except (KeyError, TypeError, ValueError) as wrong:
            raise ValueError(f"line {rows.line_num} of the table of XIDs cannot be read: {wrong}") from None
        if entry.code in table:
            raise ValueError(f"line {rows.line_num} of the table of XIDs has code {entry.code} again")
        table[entry.code] = entry
    return MappingProxyType(table)


def parse_xid(text: str) -> Xid | None:
    """The code in an event's text (`79: GPU has fallen off the bus`) or in a kernel line; None where there is none."""
    found = _KERNEL_LINE.search(text) or _EVENT_TEXT.match(text)
    if found is None:
        return None
    return Xid(int(found[1]), " ".join((found[2] or "").split()))


def action_of(xid: Xid) -> XidAction:
    """What the table asks for, with what the text itself settles: the announced recovery, and whether a link error is fatal.

    A code that the table does not hold is for a person.
    """
    entry = xid_table().get(xid.code)
    if entry is None:
        return XidAction.CHECK
    if entry.action is XidAction.ANNOUNCED:
        announced = _ANNOUNCED.findall(xid.detail)
        return _REQUIRED[announced[-1].lower()] if announced else XidAction.IGNORE
    if entry.action is XidAction.NVLINK5:
        return XidAction.RESET_GPU if _FATAL.search(xid.detail) else XidAction.IGNORE
    if entry.action is XidAction.NVLINK:
        return XidAction.RESET_GPU
    return entry.action


def meaning_of(code: int) -> str:
    """What a code stands for, in a few words."""
    entry = xid_table().get(code)
    return entry.meaning if entry is not None else "a code that the table does not hold"
