"""Fixtures that several folders of tests share."""

from control_plane.fixtures import control_plane

__all__ = ["control_plane"]
