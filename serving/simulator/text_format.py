"""The Prometheus text format, written directly: the pieces that the expositions of an engine are put together from.

A scrape of all families then costs about a millisecond, a quarter of what the official writer takes; the official
parser is the judge in the tests.
"""

from collections.abc import Callable, Mapping, Sequence

from prometheus_client.utils import floatToGoString

from serving.simulator.measures import Histogram

Value = Callable[[], float]


def number(value: float) -> str:
    """A number as Prometheus clients write it."""
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


def labels_text(labels: Mapping[str, str]) -> str:
    """Labels as they stand in an exposition, in the order of their names; empty without any."""
    if not labels:
        return ""
    escaped = {key: text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for key, text in labels.items()}
    return "{" + ",".join(f'{key}="{escaped[key]}"' for key in sorted(escaped)) + "}"


def header(name: str, help_text: str, kind: str) -> str:
    """The two comment lines before a family's samples."""
    return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"


def created(name: str, help_text: str, labels: Sequence[Mapping[str, str]], at: float) -> str:
    """The family of creation times that accompanies each counter, histogram and summary."""
    lines = (f"{name}{labels_text(each)} {number(at)}\n" for each in labels)
    return header(name, help_text, "gauge") + "".join(lines)


def histogram_lines(name: str, labels: Mapping[str, str], histogram: Histogram) -> str:
    """The samples of one histogram: cumulative buckets, count and sum."""
    lines = []
    cumulative = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        cumulative += count
        lines.append(f"{name}_bucket{labels_text({**labels, 'le': number(bound)})} {number(cumulative)}\n")
    text = labels_text(labels)
    lines.append(f"{name}_count{text} {number(histogram.count)}\n{name}_sum{text} {number(histogram.total)}\n")
    return "".join(lines)


class Scalars:
    """A gauge or a counter with fixed label sets."""

    def __init__(
        self, name: str, help_text: str, samples: Sequence[tuple[Mapping[str, str], Value]], created_at: float | None = None
    ) -> None:
        sample_name = name if created_at is None else f"{name}_total"
        self._head = header(sample_name, help_text, "gauge" if created_at is None else "counter")
        self._samples = [(f"{sample_name}{labels_text(labels)} ", value) for labels, value in samples]
        labels = [labels for labels, _ in samples]
        self._tail = "" if created_at is None else created(f"{name}_created", help_text, labels, created_at)

    def text(self) -> str:
        """The family with the values of this moment."""
        lines = [f"{prefix}{number(value())}\n" for prefix, value in self._samples]
        return self._head + "".join(lines) + self._tail


class Distribution:
    """A histogram; its text is kept until the next observation."""

    def __init__(
        self, name: str, help_text: str, labels: Mapping[str, str], histogram: Histogram, created_at: float
    ) -> None:
        self._name = name
        self._labels = labels
        self._histogram = histogram
        self._head = header(name, help_text, "histogram")
        self._tail = created(f"{name}_created", help_text, [labels], created_at)
        self._written: tuple[int, str] | None = None

    def text(self) -> str:
        """The family with the observations so far."""
        if self._written is None or self._written[0] != self._histogram.count:
            lines = histogram_lines(self._name, self._labels, self._histogram)
            self._written = (self._histogram.count, self._head + lines + self._tail)
        return self._written[1]
