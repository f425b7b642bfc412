"""Fixtures that several folders of tests share."""

from control_plane.fixtures import control_plane, kubelet, namespace
from postgres.fixtures import postgres_server, postgres_url

__all__ = ["control_plane", "kubelet", "namespace", "postgres_server", "postgres_url"]
