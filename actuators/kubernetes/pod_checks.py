"""Why a pod must not be removed. Pure; `now` in Unix seconds by the API server's clock."""

from actuators.kubernetes.object_change import Refused
from actuators.kubernetes.pod_state import Json, controller_of, is_ending, overdue, pod_facts, silent_for
from serving.kubernetes.decoding import asks_to_be_left


def kept(pod: Json) -> Refused | None:
    """Why a pod must not be removed from a living node; None when it may."""
    name = pod["metadata"]["name"]
    if asks_to_be_left(pod):
        return Refused(f"pod {name} asks to be left alone", pod_facts(pod), permanent=True)
    if controller_of(pod) is None:
        return Refused(f"pod {name} has no workload: nothing would start it anew", pod_facts(pod), permanent=True)
    return None


def why_not_stuck(pod: Json, node: Json | None, now: float, after_s: float) -> Refused | None:
    """Why a pod must not be given up; None when it should have ended `after_s` ago on a node that is silent for as long."""
    facts, name = pod_facts(pod), pod["metadata"]["name"]
    finalizers = ", ".join(pod["metadata"].get("finalizers") or ())
    late, silent = overdue(pod, now), silent_for(node, now)
    never = {
        f"pod {name} asks to be left alone": asks_to_be_left(pod),
        f"pod {name} was not told to end": not is_ending(pod),
        f"pod {name} is held by finalizers, which only their owners may remove: {finalizers}": bool(finalizers),
        f"the node of pod {name} is ready: its processes may still hold their GPUs, so a person must end it": silent is None,
    }
    not_yet = {
        f"pod {name} should have ended {late:.0f} s ago; it is given {after_s:.0f} s": late < after_s,
        f"the node of pod {name} is silent for {silent or 0:.0f} s; it is given {after_s:.0f} s": (silent or 0) < after_s,
    }
    for reasons, permanent in ((never, True), (not_yet, False)):
        says = next((text for text, holds in reasons.items() if holds), None)
        if says is not None:
            return Refused(says, facts, permanent=permanent)
    return None
