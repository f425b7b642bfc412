"""Runbook: for this cause, under these guards, these steps, verified so, undone so."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Argument = str | int | float | bool | None

Seconds = Annotated[float, Field(ge=0, le=86_400, description="a span in seconds")]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]*$", max_length=64)]


class Strict(BaseModel):
    """Frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Autonomy(StrEnum):
    """How far the warden may go on its own, least first."""

    OBSERVE = "observe"
    RECOMMEND = "recommend"
    APPROVE = "approve"
    AUTO = "auto"


class Guard(Strict):
    """A condition (CEL) on fresh state that must be true before the first step. `because` is shown when it is not."""

    require: str
    because: str


UNDO = "undo"
HAND_OVER = "hand_over"


class Step(Strict):
    """One action. `arguments` are bound to the verb's real signature when the runbook is loaded.

    `do: undo` with the argument `step` takes an earlier step back, to exactly what it found (a weight to its old value),
    and does nothing where that step had changed nothing.

    `expect` is the outcome that lets the runbook go on; anything else does what `otherwise` says: `rule_out` closes the
    incident's cause (a probe disproved it), `next` goes on all the same, `fail` rolls back and escalates. `until` (CEL)
    must become true within `within` seconds before the next step; when it does not, `if_late` says what then.

    `on` says what the action is done to: the target of the incident, each of its engines one by one (those that run on a
    GPU, a node), the node of the target, or each engine on that node. A step is over when it is over for each of them.

    `do: hand_over` ends the runbook here and calls a person; what was changed (an engine kept out of rotation, a node
    cordoned) stays as it is until that person is done.

    With `when` (CEL) the step is done only if that is true when it is due; else, also where it cannot be told, it is left
    out and the next one follows. It is also left out, when the runbook is loaded, where no actuator offers its verb.

    An outcome `failed` that a retry may help is tried again, under a new key and at growing distances, for `retry_for`
    seconds; an unknown one never is. In a rollback a step is taken back only if `undo_when` (CEL) is true, where given: an
    engine that still serves nobody had better stay out of rotation.
    """

    id: Name
    do: Name
    on: Literal["target", "engines", "node", "node_engines"] = "target"
    arguments: dict[str, Argument] = Field(default_factory=dict)
    when: str | None = None
    expect: Literal["done", "failed"] = "done"
    otherwise: Literal["rule_out", "next", "fail"] = "fail"
    until: str | None = None
    within: Seconds = 0.0
    if_late: Literal["next", "fail"] = "fail"
    retry_for: Seconds = 0.0
    undo_when: str | None = None
    because: str = ""


class Verification(Strict):
    """Recovery: every `require` (CEL over fresh state) true for `hold` seconds on end, within `within` seconds.

    `min_requests` answered on the target inside `hold` are needed; without them it is not verified: no data is not success.
    """

    require: list[str] = Field(min_length=1)
    hold: Seconds
    within: Seconds
    min_requests: Annotated[int, Field(ge=0, le=100_000)] = 1


class Runbook(Strict):
    """What to do about one cause. `autonomy` is the most that a grant can give it; `attempts` bounds whole runs."""

    name: Name
    cause: Name
    summary: str
    autonomy: Autonomy = Autonomy.AUTO
    min_score: Annotated[float, Field(ge=0, le=1)] = 0.6
    guards: list[Guard] = Field(default_factory=list)
    steps: list[Step] = Field(default_factory=list)
    verify: Verification
    rollback: list[Step] = Field(default_factory=list)
    attempts: Annotated[int, Field(ge=1, le=10)] = 2
    cool_down: Seconds = 300.0
    escalate: str
