"""The token of a pod's service account, handed to a process by file, as the projected volume of a real pod would."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from control_plane.access import Access
from control_plane.kubelet.api import Api, ApiError

EXPIRES_S = 24 * 3600


def credentials(pod: Mapping[str, Any], directory: Path, api: Api, access: Access) -> dict[str, str]:
    """The variable KUBECONFIG for a pod that is to talk to the API server; nothing where it does not want a token.

    A process has no /var/run/secrets of its own, so the token comes in a kubeconfig file. It is bound to the pod.
    """
    spec, metadata = pod["spec"], pod["metadata"]
    if spec.get("automountServiceAccountToken") is False or not spec.get("serviceAccountName"):
        return {}
    bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{spec['serviceAccountName']}/token"
    try:
        answer = api.post(path, {"spec": {"expirationSeconds": EXPIRES_S, "boundObjectRef": bound}})
    except ApiError:
        return {}
    directory.mkdir(parents=True, exist_ok=True)
    return {
        "KUBECONFIG": str(
            access.write_kubeconfig(directory / "kubeconfig", answer["status"]["token"], metadata["namespace"])
        )
    }
