"""Tables: what is measured of GPUs and nodes goes through the same history as what is measured of engines."""

import numpy as np

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import EngineFacts, Topology
from serving.telemetry.history import History
from serving.telemetry.reading import Reading, TableReading

TOPOLOGY = Topology([EngineFacts("a", "http://a", "m")])
SOURCE = Entity(EntityKind.TELEMETRY, "dcgm")
GPU_0, GPU_1 = (Entity(EntityKind.GPU, f"n:{number}") for number in range(2))
NOTHING = np.full(1, np.nan)


def _reading(at: float, clocks: dict[Entity, float], source: Entity = SOURCE) -> Reading:
    table = TableReading(tuple(clocks), np.full(len(clocks), at), {"gpu.sm_clock": np.array([*clocks.values()])})
    return Reading(source, at, NOTHING, tables={EntityKind.GPU: table})


def test_a_thing_has_its_row_by_name_whatever_the_order_of_a_reading() -> None:
    history = History(TOPOLOGY)
    history.window(10.0, TOPOLOGY, (_reading(10.0, {GPU_0: 1.0, GPU_1: 2.0}),))
    table = history.window(12.0, TOPOLOGY, (_reading(12.0, {GPU_1: 4.0, GPU_0: 3.0}),)).tables[EntityKind.GPU]
    assert table.values("gpu.sm_clock")[table.row_of[GPU_0]].tolist() == [1.0, 3.0]
    assert table.values("gpu.sm_clock")[table.row_of[GPU_1]].tolist() == [2.0, 4.0]
    assert table.latest("gpu.sm_clock", 5.0).tolist() == [3.0, 4.0]


def test_a_thing_named_for_the_first_time_has_a_past_of_nothing() -> None:
    history = History(TOPOLOGY)
    history.window(10.0, TOPOLOGY, ())
    history.window(12.0, TOPOLOGY, (_reading(12.0, {GPU_0: 1.0}),))
    table = history.window(14.0, TOPOLOGY, (_reading(14.0, {GPU_0: 1.0, GPU_1: 2.0}),)).tables[EntityKind.GPU]
    assert np.isnan(table.values("gpu.sm_clock")[table.row_of[GPU_1]]).tolist() == [True, True, False]
    assert np.isnan(table.values("gpu.sm_clock")[table.row_of[GPU_0]]).tolist() == [True, False, False]


def test_two_sources_of_one_kind_fill_one_table() -> None:
    history = History(TOPOLOGY)
    other = Entity(EntityKind.TELEMETRY, "dcgm-b")
    window = history.window(10.0, TOPOLOGY, (_reading(10.0, {GPU_0: 1.0}), _reading(10.0, {GPU_1: 2.0}, other)))
    assert window.tables[EntityKind.GPU].latest("gpu.sm_clock", 1.0).tolist() == [1.0, 2.0]


def test_a_thing_that_is_no_longer_named_is_missing_and_not_zero() -> None:
    history = History(TOPOLOGY)
    history.window(10.0, TOPOLOGY, (_reading(10.0, {GPU_0: 1.0, GPU_1: 2.0}),))
    table = history.window(40.0, TOPOLOGY, (_reading(40.0, {GPU_0: 1.0}),)).tables[EntityKind.GPU]
    assert np.isnan(table.latest("gpu.sm_clock", 10.0)).tolist() == [False, True]


def test_a_table_that_does_not_fit_is_its_sources_error_and_costs_nothing_else() -> None:
    history = History(TOPOLOGY)
    table = TableReading((GPU_0, GPU_1), np.zeros(2), {"gpu.sm_clock": np.zeros(3)})
    window = history.window(10.0, TOPOLOGY, (Reading(SOURCE, 10.0, NOTHING, tables={EntityKind.GPU: table}),))
    assert "shape (3,)" in window.sources[0].error
    assert not window.tables
