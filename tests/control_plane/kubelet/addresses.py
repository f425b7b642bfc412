"""Addresses of the loopback network for nodes and pods."""

import random
import socket
from collections.abc import Iterable


class Addresses:
    """Gives out 127.x.y.z: y for the node, z for the pod. x is drawn, so that two kubelets of one machine rarely meet."""

    def __init__(self) -> None:
        self._network = random.SystemRandom().randint(2, 254)
        self._nodes = 0
        self._taken: set[str] = set()

    def node(self) -> str:
        """The next node's address; its pods share the first three numbers."""
        self._nodes += 1
        return f"127.{self._network}.{self._nodes % 256}.1"

    def pod(self, node: str, ports: Iterable[int]) -> str:
        """An address beside the node's on which all `ports` are free. Raises OSError when there is none."""
        wanted = list(ports)
        prefix = node.rpartition(".")[0]
        for last in range(2, 255):
            address = f"{prefix}.{last}"
            if address not in self._taken and all(_is_free(address, port) for port in wanted):
                self._taken.add(address)
                return address
        raise OSError(f"no address beside {node} has the ports {wanted} free")

    def give_back(self, address: str) -> None:
        """The pod that had it is gone."""
        self._taken.discard(address)


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True
