"""The section `kubernetes` of a fleet file: which pods of a cluster are the fleet, and which labels tell where."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

HIGHEST_PORT = 65_535
ZONE = "topology.kubernetes.io/zone"
GPU_PRODUCT = "nvidia.com/gpu.product"
ROLE = "llm-d.ai/role"
RACKS = ("topology.kubernetes.io/rack", "topology.k8s.aws/rack-id", "cloud.google.com/gce-topology-subblock")
# Leaf switches as NVIDIA's Topograph, AWS (the layer nearest to the instance is 3) and Google write them.
SWITCHES = (
    "network.topology.nvidia.com/leaf",
    "topology.k8s.aws/network-node-layer-3",
    "cloud.google.com/gce-topology-block",
)
# An NVLink domain over several machines (GB200 and later): GPU feature discovery and Topograph.
NVLINK_DOMAINS = ("nvidia.com/gpu.clique", "network.topology.nvidia.com/accelerator")

_KEY = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?"
_TERM = re.compile(
    rf"\s*(?:!?\s*{_KEY}|{_KEY}\s*(?:==?|!=)\s*{_VALUE}"
    rf"|{_KEY}\s+(?:in|notin)\s+\(\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*\))\s*"
)


def _selector(text: str) -> str:
    """`text` as it is. Raises ValueError where it is no label selector of Kubernetes."""
    terms = re.split(r",(?![^(]*\))", text)
    wrong = next((term for term in terms if not _TERM.fullmatch(term)), None)
    if wrong is not None:
        raise ValueError(
            f"is no label selector: {wrong.strip() or 'an empty term'!r} is none of KEY=VALUE, KEY!=VALUE, KEY in (A,B), "
            "KEY notin (A,B), KEY, !KEY"
        )
    return text


LabelKey = Annotated[str, Field(pattern=rf"^{_KEY}$", max_length=317)]
Selector = Annotated[str, AfterValidator(_selector), Field(min_length=1, max_length=2_048)]
DnsLabel = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]


class KubernetesEntry(BaseModel):
    """A fleet that lies in a cluster. Where several labels are given, the first that a node bears counts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    selector: Selector = Field(description="label selector of the engines' pods")
    namespaces: list[DnsLabel] = Field(
        default_factory=list, max_length=64, description="namespaces to look into; empty: all of them"
    )
    port: Annotated[str, Field(min_length=1, max_length=63)] | Annotated[int, Field(ge=1, le=HIGHEST_PORT)] | None = Field(
        None, description="name or number of the port of the HTTP API; none: by `--port`, a port called http, or the first"
    )
    scheme: Literal["http", "https"] = Field("http", description="how engines are asked")
    container: DnsLabel | None = Field(
        None, description="name of the container that is the engine; none: the one that starts vLLM, or has the GPUs"
    )
    model_label: LabelKey | None = Field(
        None, description="label of pods that names their model; none: by --served-model-name, or --model"
    )
    role_label: LabelKey = Field(ROLE, description="label of pods that tells prefill, decode or another role")
    hardware_label: LabelKey = Field(GPU_PRODUCT, description="label of nodes that tells their type of GPU")
    zone_label: LabelKey = Field(ZONE, description="label of nodes that tells their zone")
    rack_labels: list[LabelKey] = Field(list(RACKS), max_length=16, description="labels of nodes that tell their rack")
    switch_labels: list[LabelKey] = Field(
        list(SWITCHES), max_length=16, description="labels of nodes that tell the switch they hang on"
    )
    nvlink_labels: list[LabelKey] = Field(
        list(NVLINK_DOMAINS), max_length=16, description="labels of nodes that tell their NVLink domain"
    )
    kubeconfig: Path | None = Field(
        None, description="kubeconfig file; none: the pod's own account, or the kubeconfig of this user"
    )
    context: Annotated[str, Field(min_length=1, max_length=253)] | None = Field(
        None, description="context in the kubeconfig"
    )
