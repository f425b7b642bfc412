"""The section `election:` of the settings."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agent.election.timing import Timing, problems


class ElectionKind(StrEnum):
    """How one of several wardens is chosen."""

    NONE = "none"
    LEASE = "lease"
    POSTGRES = "postgres"


_Seconds = Annotated[float, Field(gt=0, le=600)]
_DEFAULT = Timing()


class ElectionSettings(BaseModel):
    """Which of several wardens acts."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)

    kind: ElectionKind = Field(
        ElectionKind.NONE,
        description="none: there is only one warden; lease: by a Lease of Kubernetes; postgres: by a row in the journal",
    )
    name: str = Field(
        "fleetwarden",
        min_length=1,
        max_length=128,
        description="name of the Lease or row, the same for all of a cell",
    )
    namespace: str | None = Field(None, min_length=1, description="namespace of the Lease; none: that of the warden's pod")
    kubeconfig: Path | None = Field(
        None, description="kubeconfig file for the Lease; none: the pod's service account, or the user's own kubeconfig"
    )
    context: str | None = Field(None, description="context in the kubeconfig; none: its current one")
    lease: _Seconds = Field(_DEFAULT.lease, description="seconds after which a leader that was not heard of is replaced")
    renew: _Seconds = Field(_DEFAULT.renew, description="seconds after which a leader that could not renew stops acting")
    retry: _Seconds = Field(_DEFAULT.retry, description="seconds from one renewal, or one look at the leader, to the next")
    request: _Seconds = Field(_DEFAULT.request, description="seconds that one such request may take")

    @model_validator(mode="after")
    def _durations_fit(self) -> Self:
        wrong = "; ".join(problems(self.lease, self.renew, self.retry, self.request))
        if wrong:
            raise ValueError(wrong)
        return self

    @property
    def timing(self) -> Timing:
        """The durations as the election takes them."""
        return Timing(self.lease, self.renew, self.retry, self.request)
