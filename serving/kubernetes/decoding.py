"""From objects of the API, as JSON, to what is used of them: read as they come in, so that a large cluster fits into memory.

A field that is missing or of another shape is read as its zero value: what the API server sends has passed its own
validation, and one odd object must not cost the sight of all others. Shapes are those of
https://kubernetes.io/docs/reference/kubernetes-api/.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from serving.fleet.kubernetes_entry import KubernetesEntry
from serving.kubernetes.cluster_map import OPT_OUT, Owner
from serving.kubernetes.label_selector import Matcher, matcher
from serving.kubernetes.launch import Launch
from serving.kubernetes.naming import GROUP_LABELS
from serving.kubernetes.objects import Condition, Meta, NodeObject, PodObject, Run, WorkloadObject

Json = Mapping[str, Any]
OPTED_OUT = frozenset({"true", "1", "yes"})
LONGEST_TEXT = 300
REVISION_HASH = "controller-revision-hash"
DEPLOYMENT_REVISION = "deployment.kubernetes.io/revision"
ROLLOUT_REVISION = "rollout.argoproj.io/revision"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_GPU = re.compile(r"(?:nvidia\.com/(?:gpu|mig-.+)|amd\.com/gpu|intel\.com/gpu|gpu\.intel\.com/.+)(?:\.shared)?")
_WHOLE_GPU = re.compile(r"(?:nvidia|amd)\.com/gpu")


@dataclass(frozen=True, slots=True)
class Decoder:
    """Reads objects for one fleet. `pod_labels` and `node_labels` are those kept; `ours` tells whose labels are selected."""

    pod_labels: frozenset[str]
    node_labels: frozenset[str]
    container: str | None = None
    port: str | int | None = None
    ours: Matcher = field(default=lambda _: True)

    @classmethod
    def of(cls, entry: KubernetesEntry) -> "Decoder":
        """The reader for the fleet that a fleet file declares."""
        places = (*entry.rack_labels, *entry.switch_labels, *entry.nvlink_labels)
        return cls(
            pod_labels=GROUP_LABELS
            | {REVISION_HASH, entry.role_label}
            | ({entry.model_label} if entry.model_label else set()),
            node_labels=frozenset({entry.zone_label, entry.hardware_label, INSTANCE_TYPE, *places}),
            container=entry.container,
            port=entry.port,
            ours=matcher(entry.selector),
        )

    def node(self, json: Json) -> NodeObject:
        """A node."""
        status = json.get("status") or {}
        return NodeObject(
            meta=meta_of(json),
            labels=_some(_labels(json), self.node_labels),
            unschedulable=bool((json.get("spec") or {}).get("unschedulable")),
            gpus_capacity=_whole_gpus(status.get("capacity")),
            gpus_allocatable=_whole_gpus(status.get("allocatable")),
            conditions=tuple(_condition(one) for one in status.get("conditions") or ()),
            boot_id=(status.get("nodeInfo") or {}).get("bootID", ""),
        )

    def pod(self, json: Json) -> PodObject:
        """A pod."""
        spec, status = json.get("spec") or {}, json.get("status") or {}
        containers: list[Json] = spec.get("containers") or []
        engine = _engine_container(containers, self.container)
        conditions = {one.get("type"): one for one in status.get("conditions") or ()}
        placing, readiness = conditions.get("PodScheduled") or {}, conditions.get("Ready") or {}
        held_up = placing if placing.get("status") == "False" else {}
        return PodObject(
            meta=meta_of(json),
            labels=_some(_labels(json), self.pod_labels),
            node=sys.intern(spec.get("nodeName", "")),
            phase=sys.intern(status.get("phase", "")),
            reason=sys.intern(status.get("reason") or held_up.get("reason") or ""),
            message=_short(status.get("message") or held_up.get("message")),
            ip=status.get("podIP", ""),
            gpus=sum(_gpus(one) for one in containers),
            ready=readiness.get("status") == "True",
            ready_since=unix_seconds(readiness.get("lastTransitionTime")),
            launch=Launch.of(engine, self.port) if engine else Launch(),
            run=_run(status.get("containerStatuses") or (), engine.get("name", "") if engine else ""),
        )

    def workload(self, json: Json, kind: str, api: str) -> WorkloadObject:
        """A controller of pods, or a ControllerRevision; metadata alone is enough for a ReplicaSet."""
        spec = json.get("spec") or {}
        replicas = spec.get("replicas")
        template = _template(spec)
        return WorkloadObject(
            meta=meta_of(json),
            kind=kind,
            api=api,
            replicas=replicas if isinstance(replicas, int) else None,
            revision=_revision(json),
            first=(spec.get("ordinals") or {}).get("start", 0),
            template=self.pod(template) if template and self.ours(_labels(template)) else None,
        )


def meta_of(json: Json) -> Meta:
    """The metadata of any object."""
    told = json.get("metadata") or {}
    return Meta(
        namespace=sys.intern(told.get("namespace", "")),
        name=told.get("name", ""),
        uid=told.get("uid", ""),
        owner=_controller(told.get("ownerReferences") or ()),
        created=unix_seconds(told.get("creationTimestamp")),
        ending=bool(told.get("deletionTimestamp")),
        opted_out=asks_to_be_left(json),
    )


def asks_to_be_left(json: Json) -> bool:
    """Whether a label or an annotation of the object itself opts it out of the warden's care."""
    told = json.get("metadata") or {}
    marks = (told.get("annotations") or {}, told.get("labels") or {})
    return any(str(marked.get(OPT_OUT, "")).lower() in OPTED_OUT for marked in marks)


def unix_seconds(text: object) -> float:
    """Unix seconds of a time of the API (RFC 3339); 0 for none."""
    if not isinstance(text, str) or not text:
        return 0.0
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _controller(owners: Iterable[Json]) -> Owner | None:
    for one in owners:
        if one.get("controller"):
            name, uid = one.get("name", ""), one.get("uid", "")
            return Owner(
                sys.intern(one.get("kind", "")), sys.intern(name), sys.intern(uid), sys.intern(one.get("apiVersion", ""))
            )
    return None


def _labels(json: Json) -> Mapping[str, str]:
    return (json.get("metadata") or {}).get("labels") or {}


def _template(spec: Json) -> Json:
    """The template of the pods that a workload makes; of a LeaderWorkerSet, that of its leaders."""
    groups = spec.get("leaderWorkerTemplate") or {}
    return spec.get("template") or groups.get("leaderTemplate") or groups.get("workerTemplate") or {}


def _revision(json: Json) -> int:
    """The number of a ReplicaSet (noted by its Deployment or Rollout) or of a ControllerRevision; 0 for anything else."""
    noted = (json.get("metadata") or {}).get("annotations") or {}
    told = str(json.get("revision") or noted.get(DEPLOYMENT_REVISION) or noted.get(ROLLOUT_REVISION) or 0)
    return int(told) if told.isdigit() else 0


def _some(labels: Mapping[str, str], wanted: frozenset[str]) -> Mapping[str, str]:
    return {sys.intern(key): sys.intern(value) for key, value in labels.items() if key in wanted}


def _condition(json: Json) -> Condition:
    return Condition(
        sys.intern(json.get("type", "")),
        sys.intern(json.get("status", "")),
        sys.intern(json.get("reason", "")),
        sys.intern(_short(json.get("message"))),
        unix_seconds(json.get("lastTransitionTime")),
    )


def _engine_container(containers: list[Json], name: str | None) -> Json | None:
    """The container called `name`; else the first that starts vLLM; else the first with a GPU; else the first."""
    if name is not None:
        return next((one for one in containers if one.get("name") == name), None)
    by_launch = (one for one in containers if Launch.of(one, None).model)
    by_gpu = (one for one in containers if _gpus(one))
    return next((one for choice in (by_launch, by_gpu, containers) for one in choice), None)


def _run(statuses: Iterable[Json], container: str) -> Run:
    told = next((one for one in statuses if one.get("name") == container), None)
    if told is None:
        return Run()
    state = told.get("state") or {}
    ended = (state.get("terminated") or (told.get("lastState") or {}).get("terminated")) or {}
    waits = (state.get("waiting") or {}).get("reason", "")
    running = state.get("running") or {}
    return Run(
        began=unix_seconds(running.get("startedAt")) if running else None,
        restarts=told.get("restartCount", 0),
        reason=sys.intern(waits or ended.get("reason", "")),
        exit_code=ended.get("exitCode"),
        ended=unix_seconds(ended.get("finishedAt")) if ended else None,
    )


def _gpus(container: Json) -> int:
    """GPUs that a container asks for, slices of GPUs counted as one each."""
    resources = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return sum(_number(amount) for name, amount in asked.items() if _GPU.fullmatch(name))


def _whole_gpus(amounts: Json | None) -> float:
    return float(sum(_number(amount) for name, amount in (amounts or {}).items() if _WHOLE_GPU.fullmatch(name)))


def _number(amount: object) -> int:
    """A count of extended resources; these are whole numbers, and may be written with a suffix such as 1k."""
    text = str(amount)
    factor = {"k": 1_000, "M": 1_000_000}.get(text[-1:], 1)
    digits = text[:-1] if factor > 1 else text
    return int(digits) * factor if digits.isdigit() else 0


def _short(text: object) -> str:
    said = str(text or "")
    return said if len(said) <= LONGEST_TEXT else said[: LONGEST_TEXT - 3] + "..."
