"""The fleet file: the map of one fleet as a person or `fleetwarden up` writes it, in YAML.

Every mistake of a file is reported at once with file, line, field and value. What the fields mean to an operator is in
docs/fleet-file.md; how they become a graph is in serving.fleet.relations; what must agree is in serving.fleet.agreement.
"""

import math
import os
import tempfile
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from serving.fleet import agreement, relations
from serving.fleet.kubernetes_entry import KubernetesEntry
from serving.fleet.topology import Topology
from serving.yaml_file import FileError, Problem, load_file, load_text

HEADER = "# A map of a serving fleet, read by fleetwarden. The fields are described in docs/fleet-file.md.\n"
HIGHEST_PORT = 65_535


def _http_url(text: str) -> str:
    """`text` without a trailing slash. Raises ValueError, saying what to write instead, when it is no base URL."""
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not text.startswith((f"{parts.scheme}://",)):
        raise ValueError("has no http:// or https:// in front: write it as in http://10.0.0.7:8000")
    if not parts.hostname or any(character.isspace() for character in text):
        raise ValueError("names no host: write it as in http://10.0.0.7:8000")
    if parts.username is not None or parts.password is not None:
        raise ValueError("holds a user name or password: put the secret into a file and name that file")
    if parts.query or parts.fragment:
        raise ValueError("has a query or a fragment: only scheme, host, port and path belong here")
    if parts.port == 0:  # reading .port raises ValueError for text and for numbers that are too high
        raise ValueError("has port 0: write the port that the process listens on")
    return text.rstrip("/")


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*$", max_length=128)]
ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$", max_length=256)]
HttpUrl = Annotated[str, AfterValidator(_http_url), Field(max_length=2_048)]
Port = Annotated[int, Field(ge=1, le=HIGHEST_PORT)]
LabelName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Labels = dict[LabelName, str]


class _Strict(BaseModel):
    """Frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SwitchEntry(_Strict):
    """A thing that nodes share: a network switch or an NVLink domain."""

    name: Name = Field(description="name of the switch or NVLink domain")
    zone: Name | None = Field(None, description="zone the switch stands in")


class NodeEntry(_Strict):
    """A machine."""

    name: Name = Field(description="name of the machine")
    zone: Name | None = Field(None, description="zone the machine stands in")
    switch: Name | None = Field(None, description="switch the machine hangs on")


class RankGroup(_Strict):
    """How one engine is split over GPUs. Each of its `tp` times `pp` parts becomes a rank on the map."""

    tp: Annotated[int, Field(ge=1, le=1_024)] = Field(1, description="tensor-parallel size")
    pp: Annotated[int, Field(ge=1, le=1_024)] = Field(1, description="pipeline-parallel size")
    nodes: list[Name] = Field(
        default_factory=list,
        description="machines over which the ranks are spread in equal, ordered parts; empty: all on `node`",
    )

    @property
    def size(self) -> int:
        """How many ranks the engine has."""
        return self.tp * self.pp


class EngineEntry(_Strict):
    """A vLLM server: one replica of a model behind one URL."""

    name: Name = Field(description="name of the replica, as the front door reports it")
    url: HttpUrl = Field(description="base URL of its HTTP API, without /v1")
    model: ModelName = Field(description="name of the model it serves")
    node: Name | None = Field(None, description="machine it runs on")
    hardware: str = Field(
        "unknown",
        min_length=1,
        max_length=128,
        description="GPU type or machine class; engines are compared only with equal hardware",
    )
    role: str = Field(
        "serve",
        min_length=1,
        max_length=64,
        description="what it does for its model: serve, prefill, decode; compared only with its like",
    )
    labels: Labels = Field(
        default_factory=dict, description="label values that Prometheus puts on its series, to find it again"
    )
    extra_metrics: list[HttpUrl] = Field(
        default_factory=list,
        max_length=64,
        description="whole URLs with more of its series: the counters of tokens per expert that its workers show",
    )
    gpus: Annotated[int, Field(ge=0, le=16_384)] = Field(0, description="GPUs it occupies, all ranks together")
    group: RankGroup | None = Field(
        None, description="tensor and pipeline parallel layout, where one process is not the whole engine"
    )


class ModelEntry(_Strict):
    """The serving budget of a model: how much of it must stay healthy while the warden repairs."""

    name: ModelName = Field(description="name of the model, as in `engines`")
    min_healthy: Annotated[int, Field(ge=0)] | None = Field(
        None, description="engines that must stay healthy; not together with min_healthy_fraction"
    )
    min_healthy_fraction: Annotated[float, Field(ge=0, le=1)] = Field(
        0.5, description="share of the model's engines that must stay healthy, rounded up"
    )

    @model_validator(mode="after")
    def _one_minimum(self) -> Self:
        if {"min_healthy", "min_healthy_fraction"} <= self.model_fields_set and self.min_healthy is not None:
            raise ValueError("gives both min_healthy and min_healthy_fraction: keep one of them")
        return self

    def needed(self, engines: int) -> int:
        """How many of the model's `engines` must stay healthy."""
        if self.min_healthy is not None:
            return self.min_healthy
        return math.ceil(round(self.min_healthy_fraction * engines, 9))  # 0.7 * 10 is a little over 7 in binary


class GatewayEntry(_Strict):
    """The front door."""

    name: Name = Field(description="name of the front door")
    url: HttpUrl = Field(description="base URL that clients use; /metrics is read there too")
    admin_url: HttpUrl | None = Field(
        None, description="base URL of the admin routes (drain, undrain, weight); none: no repairs there"
    )
    admin_token_file: Path | None = Field(None, description="file with the bearer token of the admin routes")


class ScrapeEntry(_Strict):
    """Reading /metrics of every engine and of the front door directly, once in each step of the warden's loop."""

    timeout: Annotated[float, Field(gt=0, le=300)] = Field(1.5, description="seconds one target may take to answer")


class PrometheusEntry(_Strict):
    """A PromQL-compatible store that already scrapes the fleet."""

    url: HttpUrl = Field(description="base URL of the Prometheus API, without /api/v1")
    match: Labels = Field(default_factory=dict, description="label values that every query is narrowed to, such as cluster")
    bearer_token_file: Path | None = Field(None, description="file with the bearer token")
    timeout: Annotated[float, Field(gt=0, le=300)] = Field(5.0, description="seconds one query may take")


class OtlpEntry(_Strict):
    """The receiver for trace spans; engines are started with `--otlp-traces-endpoint http://HOST:PORT/v1/traces`."""

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: Annotated[int, Field(ge=0, le=HIGHEST_PORT)] = Field(4318, description="port to listen on; 0: any free one")


class TelemetryEntry(_Strict):
    """Where measurements come from. Scraping is on unless it is set to null; the others are off unless given."""

    scrape: ScrapeEntry | None = Field(default_factory=ScrapeEntry, description="direct scraping; null: off")
    prometheus: PrometheusEntry | None = Field(None, description="Prometheus to query")
    otlp: OtlpEntry | None = Field(None, description="receiver for trace spans")


class FleetFile(_Strict):
    """A whole fleet file. Building one checks that its parts agree, whether it is read or made in code."""

    fleet: Name = Field(description="name of the fleet")
    cell: Name = Field("local", description="name of the cell: one cluster with its telemetry")
    zones: list[Name] = Field(default_factory=list, description="names of the zones")
    switches: list[SwitchEntry] = Field(default_factory=list, description="network switches and NVLink domains")
    nodes: list[NodeEntry] = Field(default_factory=list, description="machines")
    engines: list[EngineEntry] = Field(default_factory=list, description="the vLLM servers; none with `kubernetes`")
    kubernetes: KubernetesEntry | None = Field(
        None, description="the pods of a cluster that are the fleet, instead of zones, switches, nodes and engines"
    )
    models: list[ModelEntry] = Field(
        default_factory=list, description="serving budgets; a model that is not listed has the defaults"
    )
    gateway: GatewayEntry | None = Field(None, description="the front door, where there is one")
    telemetry: TelemetryEntry = Field(default_factory=TelemetryEntry, description="where measurements come from")

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        mistakes = [
            InitErrorDetails(
                type=PydanticCustomError("disagreement", "{what}", {"what": found.what}), loc=found.where, input=found.value
            )
            for found in agreement.mistakes(self)
        ]
        if mistakes:
            raise ValidationError.from_exception_data("FleetFile", mistakes)
        return self

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file at `path`; secret files named by relative paths are looked for beside it. Raises FileError."""
        return load_file(path).validated(cls).beside(path.parent)

    @classmethod
    def parse(cls, text: str, name: str = "fleet.yaml") -> Self:
        """Read YAML `text`, called `name` in messages. Raises FileError."""
        return load_text(text, name).validated(cls)

    def to_yaml(self) -> str:
        """The file's text. Defaults are left out; `parse(to_yaml())` is equal to this."""
        content = self.model_dump(mode="json", exclude_defaults=True)
        return HEADER + yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)

    def dump(self, path: Path) -> None:
        """Write the file to `path`, whole or not at all. Raises FileError when it cannot be written."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_whole(path, self.to_yaml())
        except OSError as refused:
            raise FileError([Problem(str(path), 0, "", f"cannot be written: {refused.strerror}")]) from None

    def topology(self) -> Topology:
        """The map as a graph, engines in the order of the file. Without engines where the cluster has the map."""
        return Topology(relations.engine_facts(self), relations.relations(self))

    def budget(self, model: str) -> ModelEntry:
        """The serving budget of `model`; the defaults where the file does not list it."""
        return next((entry for entry in self.models if entry.name == model), ModelEntry(name=model))

    def min_healthy(self, model: str) -> int:
        """How many engines of `model` must stay healthy."""
        return self.budget(model).needed(sum(engine.model == model for engine in self.engines))

    def beside(self, folder: Path) -> Self:
        """The same fleet with the relative paths of its secret files taken from `folder`."""
        gateway, prometheus = self.gateway, self.telemetry.prometheus
        if gateway and gateway.admin_token_file:
            gateway = gateway.model_copy(update={"admin_token_file": (folder / gateway.admin_token_file).absolute()})
        if prometheus and prometheus.bearer_token_file:
            prometheus = prometheus.model_copy(
                update={"bearer_token_file": (folder / prometheus.bearer_token_file).absolute()}
            )
        telemetry = self.telemetry.model_copy(update={"prometheus": prometheus})
        cluster = self.kubernetes
        if cluster and cluster.kubeconfig:
            cluster = cluster.model_copy(update={"kubeconfig": (folder / cluster.kubeconfig.expanduser()).absolute()})
        return self.model_copy(update={"gateway": gateway, "telemetry": telemetry, "kubernetes": cluster})


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a fleet file, for editors."""
    return FleetFile.model_json_schema()


class _Dumper(yaml.SafeDumper):
    """Quotes what looks like a number: PyYAML thinks `1e5` plain text, the loader (YAML 1.2) reads it as a number."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="'" if text[:1] in "+-.0123456789" else None)


_Dumper.add_representer(str, _Dumper.represent_text)


def _write_whole(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
