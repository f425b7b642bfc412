"""Whether our account in a cluster has the rights that the settings need, and which line of which role is missing.

Asked of the API server itself: SelfSubjectRulesReview tells all rights in one namespace at once, but may leave some out
(other authorizers than RBAC need not list theirs), so what it does not tell is asked one by one by SelfSubjectAccessReview.
https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.doctor.findings import Check, ok, problem
from serving.kubernetes.client import ClusterClient
from serving.kubernetes.cluster_error import ClusterError
from serving.kubernetes.rights import Right, Rule, Scope

CHECK = "cluster.rights"
_ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
EVERYWHERE = ""


@dataclass(frozen=True, slots=True)
class Need:
    """Rules that are needed together: what for (`part`, of the chart), in words, and in which namespaces (none: in all)."""

    part: str
    purpose: str
    rules: tuple[Rule, ...]
    namespaces: tuple[str, ...] = ()
    switch: str = ""  # the chart's value that binds them

    def rights(self, served: frozenset[str]) -> Iterator[tuple[Right, str]]:
        """Each right once with the namespace it must hold in, without groups of the API that nobody serves here."""
        wanted = {right: None for rule in self.rules for right in rule.rights if right.group in served}
        for right in wanted:
            for namespace in self.namespaces if right.scope is Scope.NAMESPACES and self.namespaces else (EVERYWHERE,):
                yield right, namespace


def examine(client: ClusterClient, needs: Sequence[Need]) -> list[Check]:
    """A check of each need that is met, and one of each line that is missing. Raises ClusterError."""
    served = _served(client)
    asking = _Asking(client)
    checks: list[Check] = []
    for need in needs:
        missing = [(right, space) for right, space in need.rights(served) if not asking.allowed(right, space)]
        checks += [_missing(need, *line) for line in _lines(missing)]
        if not missing:
            where = f" in {', '.join(need.namespaces)}" if need.namespaces else ""
            checks.append(ok(CHECK, need.part, f"may {need.purpose}{where}"))
    return checks


def _lines(missing: Iterable[tuple[Right, str]]) -> Iterator[tuple[str, str, str, list[str]]]:
    """Missing rights as lines of roles: namespace, group, resource, verbs."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    for right, space in missing:
        lines.setdefault((space, right.group, right.resource), []).append(right.verb)
    for (space, group, resource), verbs in lines.items():
        yield space, group, resource, verbs


def _missing(need: Need, space: str, group: str, resource: str, verbs: list[str]) -> Check:
    line = f'- {{apiGroups: ["{group}"], resources: ["{resource}"], verbs: [{", ".join(verbs)}]}}'
    where = f"in namespace {space}" if space else "in the whole cluster"
    role = f"Role in namespace {space}" if space else "ClusterRole"
    named = f"{resource}{f'.{group}' if group else ''}"
    says = f"may not {', '.join(verbs)} {named} {where}, which it needs to {need.purpose}"
    chart = f", or set {need.switch}=true in the chart" if need.switch else ""
    details = {"verbs": verbs, "group": group, "resource": resource, "namespace": space, "line": line}
    return problem(CHECK, need.part, says, f"add to its {role}: {line}{chart}", **details)


class _Asking:
    """Answers of the API server, each question asked once."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._told: dict[str, list[Mapping[str, Any]]] = {}
        self._answers: dict[tuple[Right, str], bool] = {}

    def allowed(self, right: Right, namespace: str) -> bool:
        if (right, namespace) not in self._answers:
            told = namespace != EVERYWHERE and any(_covers(rule, right) for rule in self._rules(namespace))
            self._answers[right, namespace] = told or self._ask(right, namespace)
        return self._answers[right, namespace]

    def _rules(self, namespace: str) -> list[Mapping[str, Any]]:
        if namespace not in self._told:
            answer = self._client.create(_RULES, _review("SelfSubjectRulesReview", {"namespace": namespace}))
            self._told[namespace] = list((answer.get("status") or {}).get("resourceRules") or ())
        return self._told[namespace]

    def _ask(self, right: Right, namespace: str) -> bool:
        resource, _, sub = right.resource.partition("/")
        asked = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": sub, "namespace": namespace}
        answer = self._client.create(_ACCESS, _review("SelfSubjectAccessReview", {"resourceAttributes": asked}))
        return bool((answer.get("status") or {}).get("allowed"))


def _review(kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}


def _covers(rule: Mapping[str, Any], right: Right) -> bool:
    """Whether a rule that holds for every object of its resources gives `right`."""
    if rule.get("resourceNames"):
        return False
    pairs = ((rule.get("verbs"), right.verb), (rule.get("apiGroups"), right.group), (rule.get("resources"), right.resource))
    return all("*" in (given or ()) or wanted in (given or ()) for given, wanted in pairs)


def _served(client: ClusterClient) -> frozenset[str]:
    """Groups of the API that this cluster has; rights on others are of no use. All that a warden knows of when not told."""
    try:
        groups = client.get("/apis").get("groups") or ()
    except ClusterError as refused:
        if not refused.forbidden:
            raise
        return _KNOWN
    return frozenset({"", *(str(one.get("name")) for one in groups)})


_KNOWN = frozenset({"", "apps", "autoscaling", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "policy"})
