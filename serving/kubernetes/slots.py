"""Slots: names that outlive pods. A Deployment's pods come and go under random names; its engines are called by slots.

Engine `llama-2` is the third slot of Deployment `llama`, whatever pod holds it at the moment. A new pod takes the lowest
number that no living pod holds; a pod that is being deleted gives its number up to the one that replaces it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Protocol


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A pod that holds or wants a slot. `created` in Unix seconds; `ending`: its deletion was asked for."""

    created: float
    uid: str
    ending: bool = False


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of one workload. `numbers` by pod uid, each at most once; `vacant` are wanted and held by no pod now."""

    numbers: Mapping[str, int]
    vacant: tuple[int, ...] = ()


class SlotMemory(Protocol):
    """What keeps the numbers of pods over restarts and changes of the leading warden."""

    def load(self) -> Mapping[str, int]:
        """Slot numbers by pod uid; empty when nothing was kept. May raise what its store raises."""
        ...

    def keep(self, numbers: Mapping[str, int]) -> None:
        """Replace all that was kept. May raise what its store raises."""
        ...

    @property
    def ours(self) -> bool:
        """Whether it is ours to number pods. Where it is not, somebody else's numbers are kept there, and hold."""
        ...


class ForgetfulMemory:
    """Keeps the numbers for the life of this process only."""

    ours = True

    def __init__(self) -> None:
        self._numbers: Mapping[str, int] = {}

    def load(self) -> Mapping[str, int]:
        return self._numbers

    def keep(self, numbers: Mapping[str, int]) -> None:
        self._numbers = dict(numbers)


def assign(remembered: Mapping[str, int], pods: Iterable[Holder], wanted: int | None) -> Slots:
    """Give every living pod of one workload a number, and say which of the `wanted` ones nobody holds.

    A remembered number stays with its pod. Of two living pods with one number the older keeps it.
    """
    in_order = sorted(pods)
    numbers: dict[str, int] = {}
    held: set[int] = set()
    living = [pod for pod in in_order if not pod.ending]
    for pod in living:
        number = remembered.get(pod.uid)
        if number is not None and number >= 0 and number not in held:
            numbers[pod.uid] = number
            held.add(number)
    free = _free(held)
    for pod in living:
        if pod.uid not in numbers:
            numbers[pod.uid] = next(free)
            held.add(numbers[pod.uid])
    for pod in in_order:
        number = remembered.get(pod.uid)
        if pod.ending and number is not None and number >= 0 and number not in held:
            numbers[pod.uid] = number
            held.add(number)
    missing = max(0, (wanted or 0) - len(held))
    free = _free(held)
    return Slots(numbers, tuple(next(free) for _ in range(missing)))


def _free(held: set[int]) -> Iterator[int]:
    """Numbers that are not held at the moment when each is asked for, lowest first."""
    return (number for number in count() if number not in held)
