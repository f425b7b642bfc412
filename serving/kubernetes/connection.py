"""Where the API server is and who we are there: a kubeconfig file, or the service account of the pod we run in."""

import os
import threading
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from serving.clock import Clock
from serving.kubernetes.client import DEADLINE_S, ClusterClient
from serving.kubernetes.cluster_error import ClusterError

IN_CLUSTER = "KUBERNETES_SERVICE_HOST"  # set in every pod
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")  # in every pod with a service account
CONNECTIONS = 64  # at once and kept open; a burst of repairs must not wait for handshakes


def connect(
    kubeconfig: Path | None = None,
    context: str | None = None,
    *,
    clock: Clock,
    deadline_s: float = DEADLINE_S,
    connections: int = CONNECTIONS,
) -> ClusterClient:
    """A client by `kubeconfig` (and a context in it). Without one: the pod's service account, or else the user's kubeconfig.

    Asks nothing of the server yet. Raises ClusterError (reason Configuration) that says what to do.
    """
    try:
        # An extra, wanted only where there is a cluster; its functions bear no types.
        client, config, rest = (import_module(f"kubernetes.{part}") for part in ("client", "config", "client.rest"))
    except ImportError:
        raise _misconfigured("the package `kubernetes` is missing; install fleetwarden[kubernetes]") from None
    made: Any = client.Configuration()
    try:
        if kubeconfig is None and context is None and os.environ.get(IN_CLUSTER):
            config.load_incluster_config(made)
        else:
            place = str(kubeconfig) if kubeconfig is not None else None
            config.load_kube_config(place, context, made, persist_config=False)
    except config.ConfigException as wrong:
        where = kubeconfig or "the kubeconfig of this user and the service account of this pod"
        raise _misconfigured(f"{where}: {wrong}") from wrong
    except OSError as wrong:
        raise _misconfigured(f"{kubeconfig or 'kubeconfig'}: {wrong}") from wrong
    made.connection_pool_maxsize = connections
    pool = rest.RESTClientObject(made).pool_manager
    return ClusterClient(made.host, pool, _Credentials(made), clock, deadline_s)


class _Credentials:
    """The headers that say who we are. Tokens are renewed by the package's own hooks, one thread at a time."""

    def __init__(self, configuration: Any) -> None:
        self._configuration = configuration
        self._lock = threading.Lock()

    def __call__(self) -> Mapping[str, str]:
        with self._lock:
            try:
                settings = self._configuration.auth_settings()
            except Exception as failed:  # whatever a plugin for credentials raises; it runs programs of others
                raise ClusterError(0, "Configuration", f"no credentials: {failed}", reached=False) from failed
        return {one["key"]: one["value"] for one in settings.values() if one["in"] == "header" and one["value"]}


def _misconfigured(says: str) -> ClusterError:
    return ClusterError(0, "Configuration", says, reached=False)
