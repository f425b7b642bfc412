"""Fixtures that several folders of tests share."""

from control_plane.fixtures import control_plane, kubelet, namespace

__all__ = ["control_plane", "kubelet", "namespace"]
