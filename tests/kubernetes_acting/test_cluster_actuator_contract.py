"""What every actuator promises, over the actuators of a cluster and a real API server."""

import pytest
from actuator_contract import (
    test_a_look_up_tells_whether_it_happened,
    test_a_rehearsal_changes_nothing_and_foretells_the_act,
    test_every_undo_is_a_verb_of_the_same_actuator,
    test_the_same_key_changes_the_world_once_whatever_came_between,
    test_what_does_not_fit_fails_for_good,
    test_whatever_was_done_and_undone_leaves_the_world_as_it_was,
)

pytestmark = pytest.mark.real_kubernetes

__all__ = [
    "test_a_look_up_tells_whether_it_happened",
    "test_a_rehearsal_changes_nothing_and_foretells_the_act",
    "test_every_undo_is_a_verb_of_the_same_actuator",
    "test_the_same_key_changes_the_world_once_whatever_came_between",
    "test_what_does_not_fit_fails_for_good",
    "test_whatever_was_done_and_undone_leaves_the_world_as_it_was",
]
