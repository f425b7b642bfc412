"""Cordons and taints as plans on a node object. Pure.

A person's cordon is never undone: a node that is unschedulable without our annotation, or whose field was last set by
somebody else, is a person's. A person who uncordons a node that an incident holds has decided: the same incident does not
cordon it again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from actuators.kubernetes.holds import holds_in, incident_of, released, taken, with_annotation
from actuators.kubernetes.ledger import annotations_of
from actuators.kubernetes.object_change import Change, Json, Refused
from actuators.kubernetes.outcomes import Facts
from serving.kubernetes.client import FIELD_MANAGER
from serving.kubernetes.cluster_map import OPT_OUT, PREFIX
from serving.kubernetes.decoding import asks_to_be_left

CORDONED_BY = f"{PREFIX}cordoned-by"
TAINTED_BY = f"{PREFIX}tainted-by"
SOMEBODY = "somebody"
EFFECTS = ("NoSchedule", "PreferNoSchedule")


def cordon_facts(node: Mapping[str, Any]) -> Facts:
    """How a node stands: whether it is unschedulable, by whom, and how many incidents hold it."""
    held = cordon_holds(node)
    closed = bool((node.get("spec") or {}).get("unschedulable"))
    by = None if not closed else FIELD_MANAGER if held else SOMEBODY
    return {"unschedulable": closed, "cordoned_by": by, "holds": len(held)}


def cordon_holds(node: Mapping[str, Any]) -> tuple[str, ...]:
    """The operations that hold the node; none where it is schedulable, or was cordoned by somebody else."""
    if not (node.get("spec") or {}).get("unschedulable") or not _set_by_us(node):
        return ()
    return holds_in(annotations_of(node).get(CORDONED_BY))


def uncordoned_by_others(node: Mapping[str, Any], key: str) -> bool:
    """Whether somebody uncordoned a node that the key's incident had cordoned."""
    stale = holds_in(annotations_of(node).get(CORDONED_BY))
    closed = (node.get("spec") or {}).get("unschedulable")
    return not closed and any(incident_of(hold) == incident_of(key) for hold in stale)


def cordon(node: Json, key: str) -> Change | Refused:
    """The node unschedulable, with a hold for the key's incident."""
    before = cordon_facts(node)
    name = node["metadata"]["name"]
    refused = left_alone(node, before)
    if refused is not None:
        return refused
    if before["cordoned_by"] == SOMEBODY:
        return Change(node, before, before, f"{name} is cordoned already, by somebody else")
    if uncordoned_by_others(node, key):
        return Refused(f"{name} was uncordoned by somebody while this incident held it; that stands", before, permanent=True)
    held = taken(cordon_holds(node), key)
    wanted = with_annotation(node, CORDONED_BY, "\n".join(held))
    wanted["spec"] = {**(node.get("spec") or {}), "unschedulable": True}
    after: Facts = {"unschedulable": True, "cordoned_by": FIELD_MANAGER, "holds": len(held)}
    says = f"{name} is cordoned" + (f", now for {len(held)} incidents" if len(held) > 1 else "")
    return Change(wanted, before, after, says)


def uncordon(node: Json, key: str) -> Change | Refused:
    """The node without the hold of the key's incident, and schedulable when no other holds it."""
    before = cordon_facts(node)
    name = node["metadata"]["name"]
    refused = left_alone(node, before)
    if refused is not None:
        return refused
    if before["cordoned_by"] == SOMEBODY:
        return Refused(f"{name} was cordoned by somebody else, who alone may uncordon it", before, permanent=True)
    if not before["unschedulable"]:
        cleaned = with_annotation(node, CORDONED_BY, "")
        return Change(cleaned, before, before, f"{name} is not cordoned")
    left = released(cordon_holds(node), key)
    wanted = with_annotation(node, CORDONED_BY, "\n".join(left))
    if left:
        after: Facts = {**before, "holds": len(left)}
        return Change(wanted, before, after, f"{name} stays cordoned for {', '.join(map(incident_of, left))}")
    wanted["spec"] = {name: value for name, value in node["spec"].items() if name != "unschedulable"}
    return Change(wanted, before, {"unschedulable": False, "cordoned_by": None, "holds": 0}, f"{name} is uncordoned")


def taint(node: Json, key: str, wanted: Mapping[str, str]) -> Change | Refused:
    """The node with a taint, held for the key's incident."""
    before, text = taint_facts(node, wanted), taint_text(wanted)
    refused = left_alone(node, before)
    if refused is not None:
        return refused
    name = node["metadata"]["name"]
    held = taint_holds(node, wanted)
    if before["tainted"] and not held:
        return Change(node, before, before, f"{name} bears {text} already, by somebody else")
    now = taken(held, key)
    taints = [*_without(node, wanted), dict(wanted)]
    changed = _with_taints(_with_taint_holds(node, text, now), taints)
    return Change(changed, before, {"tainted": True, "taint": text, "holds": len(now)}, f"{name} bears {text}")


def untaint(node: Json, key: str, unwanted: Mapping[str, str]) -> Change | Refused:
    """The node without the hold of the key's incident on a taint, and without the taint when no other holds it."""
    before, text = taint_facts(node, unwanted), taint_text(unwanted)
    refused = left_alone(node, before)
    if refused is not None:
        return refused
    name = node["metadata"]["name"]
    held = taint_holds(node, unwanted)
    if not before["tainted"]:
        return Change(_with_taint_holds(node, text, ()), before, before, f"{name} does not bear {text}")
    if not held:
        return Refused(f"{name} was given {text} by somebody else, who alone may take it off", before, permanent=True)
    left = released(held, key)
    changed = _with_taint_holds(node, text, left)
    if left:
        return Change(changed, before, {**before, "holds": len(left)}, f"{name} keeps {text} for {len(left)} incidents")
    after: Facts = {"tainted": False, "taint": text, "holds": 0}
    return Change(_with_taints(changed, _without(node, unwanted)), before, after, f"{name} does not bear {text} any more")


def parsed_taint(text: str) -> dict[str, str]:
    """A taint from `key[=value]:Effect`. Raises ValueError that says what is wrong."""
    front, colon, effect = text.rpartition(":")
    name, _, value = front.partition("=")
    if not colon or not name:
        raise ValueError(f"{text!r} is not a taint: write key=value:Effect")
    if effect not in EFFECTS:
        why = "; it would end pods past their disruption budgets: use node.drain" if effect == "NoExecute" else ""
        raise ValueError(f"the effect of {text!r} must be {' or '.join(EFFECTS)}{why}")
    return {"key": name, "effect": effect} | ({"value": value} if value else {})


def taint_text(one: Mapping[str, str]) -> str:
    """A taint as kubectl writes it."""
    return one["key"] + (f"={one['value']}" if one.get("value") else "") + f":{one['effect']}"


def taint_facts(node: Mapping[str, Any], one: Mapping[str, str]) -> Facts:
    """Whether the node bears the taint, and how many incidents hold it. `taint` is there for the undo."""
    bears = any(_same(other, one) for other in _taints(node))
    return {"tainted": bears, "taint": taint_text(one), "holds": len(taint_holds(node, one)) if bears else 0}


def taint_holds(node: Mapping[str, Any], one: Mapping[str, str]) -> tuple[str, ...]:
    """The operations that hold a taint that the node bears."""
    if not any(_same(other, one) for other in _taints(node)):
        return ()
    return tuple(hold for text, hold in _all_taint_holds(node) if text == taint_text(one))


def left_alone(thing: Mapping[str, Any], facts: Facts) -> Refused | None:
    """The refusal when a label or an annotation of the object asks to leave it alone; None without one."""
    if asks_to_be_left(thing):
        return Refused(f"{thing['metadata']['name']} asks to be left alone ({OPT_OUT})", facts, permanent=True)
    return None


def _set_by_us(node: Mapping[str, Any]) -> bool:
    """Whether spec.unschedulable was last set by us, as far as the server kept who did."""
    for one in (node.get("metadata") or {}).get("managedFields") or ():
        if "f:unschedulable" in ((one.get("fieldsV1") or {}).get("f:spec") or {}):
            return bool(one.get("manager") == FIELD_MANAGER)
    return True


def _taints(node: Mapping[str, Any]) -> Sequence[Mapping[str, str]]:
    found: Sequence[Mapping[str, str]] = (node.get("spec") or {}).get("taints") or ()
    return found


def _same(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return one["key"] == other["key"] and one.get("effect") == other.get("effect")


def _without(node: Mapping[str, Any], one: Mapping[str, str]) -> list[Mapping[str, str]]:
    return [other for other in _taints(node) if not _same(other, one)]


def _with_taints(node: Mapping[str, Any], taints: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    spec = {name: value for name, value in (node.get("spec") or {}).items() if name != "taints"}
    return {**node, "spec": {**spec, "taints": list(taints)} if taints else spec}


def _all_taint_holds(node: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(taint, operation), in the order in which they were taken; a line of the annotation is `taint operation`."""
    pairs = [line.partition(" ") for line in holds_in(annotations_of(node).get(TAINTED_BY))]
    return [(text, hold) for text, _, hold in pairs if hold]


def _with_taint_holds(node: Mapping[str, Any], text: str, held: Sequence[str]) -> dict[str, Any]:
    lines = [f"{other} {hold}" for other, hold in _all_taint_holds(node) if other != text]
    return with_annotation(node, TAINTED_BY, "\n".join([*lines, *(f"{text} {hold}" for hold in held)]))
