"""What a cluster tells of its engines: how long each has been starting, and which revision of its workload it has. Pure."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from serving.fleet.topology import Topology
from serving.kubernetes.decoding import REVISION_HASH
from serving.kubernetes.mapping import Objects
from serving.kubernetes.naming import Member
from serving.kubernetes.objects import PodObject

Floats = NDArray[np.float64]
STARTING, REVISION, UP = "engine.starting_seconds", "engine.revision", "scrape.up"
SETTLED_S = 5.0  # within so long a kubelet has told that what a restarted container was before is not ready any more


def engine_signals(topology: Topology, members: Mapping[str, Member], objects: Objects, now: float) -> Mapping[str, Floats]:
    """The signals, one row an engine of `topology`; NaN where nothing is known. `now` by the cluster's clock.

    An engine without a pod, or whose pod has no address yet, cannot answer: that is told as not up, and not as not seen.
    """
    rows = len(topology.engines)
    values = {name: np.full(rows, np.nan) for name in (STARTING, REVISION, UP)}
    revisions = {(one.meta.namespace, one.meta.name): one.revision for one in objects.revisions.values()}
    for row, engine in enumerate(topology.engines):
        one = members.get(engine.name)
        if one is None:
            continue
        if one.pod is None or not one.pod.ip:
            values[UP][row] = 0.0
        if one.pod is not None:
            values[STARTING][row] = starting_seconds(one.pod, now)
            values[REVISION][row] = _revision(one.pod, objects, revisions) or np.nan
    return values


def starting_seconds(pod: PodObject, now: float) -> float:
    """How long the pod's engine has been starting; 0 once it was ready, NaN where no process was started.

    A pod whose container was never started starts from its creation on: placing it and pulling its image are part of it.
    Between two runs (CrashLoopBackOff) nothing starts.
    """
    if pod.ready:
        return 0.0
    run = pod.run
    if run.began is not None:
        # Readiness that changed well after the process began can only have been lost: it was ready in between.
        return 0.0 if pod.ready_since > run.began + SETTLED_S else max(0.0, now - run.began)
    if run.restarts == 0 and run.ended is None:
        return max(0.0, now - pod.meta.created)
    return np.nan


def _revision(pod: PodObject, objects: Objects, revisions: Mapping[tuple[str, str], int]) -> int:
    owner = pod.meta.owner
    if owner is not None and (above := objects.replica_sets.get(owner.uid)) is not None:
        return above.revision
    return revisions.get((pod.meta.namespace, pod.labels.get(REVISION_HASH, "")), 0)
