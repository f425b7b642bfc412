"""All faults and decoys of a fleet in virtual time, by name."""

from collections.abc import Mapping
from types import MappingProxyType

from serving.virtual.faults.decoys import DECOY_KINDS
from serving.virtual.faults.engine_kinds import ENGINE_KINDS
from serving.virtual.faults.hardware_kinds import HARDWARE_KINDS
from serving.virtual.faults.kind import Kind
from serving.virtual.faults.service_kinds import SERVICE_KINDS

FAULTS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in (*ENGINE_KINDS, *HARDWARE_KINDS, *SERVICE_KINDS)})
DECOYS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in DECOY_KINDS})
