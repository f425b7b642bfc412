"""Who may talk to the API server, and with what: tokens, kubeconfig files, clients, the key of service accounts."""

import base64
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from kubernetes import client

ADMIN = "admin"
CONTROLLER_MANAGER = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
KUBELET = "process-kubelet"  # bound to the role of a kubelet once the server is up
# Groups by user. The names and the group of administrators are those that the API server's own first roles are bound to:
# https://kubernetes.io/docs/reference/access-authn-authz/rbac/#default-roles-and-role-bindings
BUILT_IN: Mapping[str, Sequence[str]] = {
    ADMIN: ("system:masters",),
    CONTROLLER_MANAGER: (),
    SCHEDULER: (),
    KUBELET: (),
}


@dataclass(slots=True)
class Access:
    """Tokens by user. `url` and `certificate` (of the server, signed by itself) tell clients whom to trust."""

    url: str
    certificate: Path
    directory: Path
    users: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    _clients: list[client.ApiClient] = field(default_factory=list)

    def write_tokens(self) -> Path:
        """The file for --token-auth-file: token, user, uid, groups. Read by the server once, at its start."""
        lines = []
        for user, groups in {**BUILT_IN, **self.users}.items():
            self.tokens[user] = secrets.token_hex(16)
            lines.append(f'{self.tokens[user]},{user},{user},"{",".join(groups)}"')
        return _private(self.directory / "tokens.csv", "\n".join(lines) + "\n")

    def token(self, user: str) -> str:
        """Raises KeyError, naming who is known."""
        if user not in self.tokens:
            raise KeyError(f"no user {user!r}; there are {', '.join(sorted(self.tokens))}")
        return self.tokens[user]

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """A kubeconfig file, as kubectl and every client library read it."""
        return self.write_kubeconfig(self.directory / f"{user.replace(':', '-')}.kubeconfig", self.token(user))

    def write_kubeconfig(self, path: Path, token: str, namespace: str = "default") -> Path:
        """Write a kubeconfig file for the bearer of `token`."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "bearer", "namespace": namespace}}],
            "clusters": [{"name": "test", "cluster": {"server": self.url, "certificate-authority": str(self.certificate)}}],
            "users": [{"name": "bearer", "user": {"token": token}}],
        }
        return _private(path, yaml.safe_dump(content, sort_keys=False))

    def configuration(self, user: str = ADMIN) -> client.Configuration:
        """What the client library needs to know. A proxy of the environment has no part in it."""
        made = client.Configuration(host=self.url, ssl_ca_cert=str(self.certificate))
        made.proxy = None
        made.api_key = {"authorization": f"Bearer {self.token(user)}"}
        made.api_key["BearerToken"] = made.api_key["authorization"]  # newer versions of the library ask for it by this name
        return made

    def api_client(self, user: str = ADMIN) -> client.ApiClient:
        """A client with connections of its own; closed with everything else at the end."""
        made = client.ApiClient(self.configuration(user))
        self._clients.append(made)
        return made

    def close(self) -> None:
        """Close all connections of the clients that were handed out."""
        for one in self._clients:
            one.rest_client.close()
        self._clients.clear()


def signing_key(path: Path) -> Path:
    """A new P-256 private key as the server takes it for service accounts' tokens.

    SEC 1, as RFC 5915 writes it: version 1, the secret number, the name of the curve. The public half may be left out; Go's
    library works it out.
    """
    secret = b"\0" + secrets.token_bytes(31)  # below the order of the curve, whatever the rest is
    curve = bytes.fromhex("a00a06082a8648ce3d030107")  # [0] OBJECT IDENTIFIER 1.2.840.10045.3.1.7 (prime256v1)
    body = b"\x02\x01\x01" + b"\x04\x20" + secret + curve
    text = base64.encodebytes(b"\x30" + bytes([len(body)]) + body).decode()
    return _private(path, f"-----BEGIN EC PRIVATE KEY-----\n{text}-----END EC PRIVATE KEY-----\n")


def _private(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path
