"""Counts HTTP requests as the instrumentator in vLLM's server does, under the same names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serving.simulator.measures import Histogram
from serving.simulator.text_format import created, header, histogram_lines, labels_text, number

HIGH_RESOLUTION = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0, 30.0, 60.0),
)
LOW_RESOLUTION = (0.1, 0.5, 1.0)
UNCOUNTED = frozenset({"/metrics", "/health", "/load", "/ping", "/version", "/server_info"})

_REQUESTS = "Total number of requests by method, status and handler."
_REQUEST_SIZE = (
    "Content length of incoming requests by handler. Only value of header is respected. Otherwise ignored."
    " No percentile calculated. "
)
_RESPONSE_SIZE = (
    "Content length of outgoing responses by handler. Only value of header is respected. Otherwise ignored."
    " No percentile calculated. "
)
_HIGH = "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. "
_LOW = "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. "


@dataclass(slots=True)
class _Sizes:
    created_at: float
    count: int = 0
    total: int = 0


class HttpMeasures:
    """The `http_` part of `/metrics`. `created_at` is Unix seconds."""

    def __init__(self, created_at: float) -> None:
        self._created_at = created_at
        self._requests: dict[tuple[str, str, str], list[float]] = {}
        self._received: dict[str, _Sizes] = {}
        self._sent: dict[str, _Sizes] = {}
        self._high = Histogram(HIGH_RESOLUTION)
        self._low: dict[tuple[str, str], tuple[Histogram, float]] = {}

    def count(self, *, handler: str, method: str, status: int, seconds: float, received: int, sent: int, at: float) -> None:
        """Count one answered request. `received` and `sent` are content lengths in bytes, `at` Unix seconds."""
        if handler in UNCOUNTED:
            return
        group = f"{status // 100}xx"
        self._requests.setdefault((handler, method, group), [0.0, at])[0] += 1
        for sizes, length in ((self._received, received), (self._sent, sent)):
            entry = sizes.setdefault(handler, _Sizes(at))
            entry.count += 1
            entry.total += length
        self._high.observe(seconds)
        self._low.setdefault((handler, method), (Histogram(LOW_RESOLUTION), at))[0].observe(seconds)

    def text(self) -> str:
        """All families, each with the numbers of this moment."""
        return self._request_counts() + self._sizes() + self._durations()

    def _request_counts(self) -> str:
        labelled = [
            ({"handler": handler, "method": method, "status": status}, value)
            for (handler, method, status), value in self._requests.items()
        ]
        lines = [f"http_requests_total{labels_text(labels)} {number(count)}\n" for labels, (count, _) in labelled]
        births = [(labels, at) for labels, (_, at) in labelled]
        return (
            header("http_requests_total", _REQUESTS, "counter")
            + "".join(lines)
            + _births("http_requests", _REQUESTS, births)
        )

    def _sizes(self) -> str:
        parts = []
        for name, help_text, sizes in (
            ("http_request_size_bytes", _REQUEST_SIZE, self._received),
            ("http_response_size_bytes", _RESPONSE_SIZE, self._sent),
        ):
            parts.append(header(name, help_text, "summary"))
            for handler, each in sizes.items():
                text = labels_text({"handler": handler})
                parts.append(f"{name}_count{text} {number(each.count)}\n{name}_sum{text} {number(each.total)}\n")
            parts.append(_births(name, help_text, [({"handler": key}, each.created_at) for key, each in sizes.items()]))
        return "".join(parts)

    def _durations(self) -> str:
        high, low = "http_request_duration_highr_seconds", "http_request_duration_seconds"
        labelled = [
            ({"handler": handler, "method": method}, histogram, at)
            for (handler, method), (histogram, at) in self._low.items()
        ]
        return "".join(
            (
                header(high, _HIGH, "histogram"),
                histogram_lines(high, {}, self._high),
                created(f"{high}_created", _HIGH, [{}], self._created_at),
                header(low, _LOW, "histogram"),
                *(histogram_lines(low, labels, histogram) for labels, histogram, _ in labelled),
                _births(low, _LOW, [(labels, at) for labels, _, at in labelled]),
            )
        )


def _births(name: str, help_text: str, births: Sequence[tuple[Mapping[str, str], float]]) -> str:
    if not births:
        return ""
    lines = (f"{name}_created{labels_text(labels)} {number(at)}\n" for labels, at in births)
    return header(f"{name}_created", help_text, "gauge") + "".join(lines)
