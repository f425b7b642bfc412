"""The table of rights: one family for each verb, and nothing in it that a careful administrator would refuse."""

from itertools import chain

import pytest
from pydantic import ValidationError

from actuators.kubernetes.rights import Rights, load_rights
from serving.kubernetes.rights import Right, Scope, load_base_rights

READS = {"get", "list", "watch"}


def test_what_is_bound_from_the_start_changes_nothing_but_the_wardens_own_lease() -> None:
    base = load_base_rights()
    assert {right.verb for rule in base.read for right in rule.rights} == READS
    assert {right.resource for rule in base.own for right in rule.rights} == {"leases"}


def test_no_rule_asks_for_everything_or_for_secrets() -> None:
    rules = chain(load_base_rights().read, *(family.rules for family in load_rights().families.values()))
    for right in chain.from_iterable(rule.rights for rule in rules):
        assert "*" not in {right.verb, right.group, right.resource}
        assert right.resource not in {"secrets", "configmaps", "pods/exec", "pods/attach", "serviceaccounts/token"}


def test_families_are_found_by_the_verbs_of_the_warden() -> None:
    rights = load_rights()
    assert list(rights.families_of(["node.cordon", "node.uncordon", "door.drain"])) == ["cordon"]
    assert rights.families_of(["door.drain", "engine.canary"]) == {}


def test_a_verb_in_two_families_is_refused() -> None:
    family = {"says": "x", "verbs": ["pod.evict"], "rules": [_rule()]}
    with pytest.raises(ValidationError, match="two families, a and b"):
        Rights.model_validate({"shared": [], "families": {"a": family, "b": family}})


def test_a_right_is_written_as_kubectl_writes_it() -> None:
    assert str(Right("get", "apps", "deployments", Scope.NAMESPACES)) == "get deployments.apps"
    assert str(Right("create", "", "pods/eviction", Scope.NAMESPACES)) == "create pods/eviction"


def _rule() -> dict[str, object]:
    return {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "scope": "namespaces"}
