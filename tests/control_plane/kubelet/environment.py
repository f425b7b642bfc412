"""The environment of a container, and the $(NAME) references to it in its command line."""

import re
from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]
_REFERENCE = re.compile(r"\$(\$\([^)]*\)|\(([A-Za-z_.-][A-Za-z0-9_.-]*)\))")
_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


def environment(container: Json, pod: Json, node: str, address: str, node_address: str) -> dict[str, str]:
    """What the container's `env` says: values with references to earlier ones, and fields of the pod.

    Raises ValueError for sources that are files elsewhere (config maps, secrets) and for unknown fields.
    """
    fields = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "spec.nodeName": node,
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", ""),
        "status.podIP": address,
        "status.podIPs": address,
        "status.hostIP": node_address,
    }
    made: dict[str, str] = {}
    for entry in container.get("env") or ():
        source = entry.get("valueFrom")
        made[entry["name"]] = expand(entry.get("value", ""), made) if source is None else _field(source, fields, pod)
    return made


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME) by its value; unknown names stay, and $$(NAME) means $(NAME) itself.

    https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    """

    def value(found: re.Match[str]) -> str:
        return found[1][1:].join(("$", "")) if found[2] is None else variables.get(found[2], found[0])

    return _REFERENCE.sub(value, text)


def _field(source: Json, fields: Mapping[str, str], pod: Json) -> str:
    if "fieldRef" not in source:
        raise ValueError(f"env from {', '.join(source)}: only values and fieldRef are known to the process kubelet")
    path = source["fieldRef"]["fieldPath"]
    keyed = _KEYED.fullmatch(path)
    if keyed is not None:
        return str((pod["metadata"].get(keyed[1]) or {}).get(keyed[2], ""))
    if path not in fields:
        raise ValueError(f"env from field {path}: not known to the process kubelet")
    return fields[path]
