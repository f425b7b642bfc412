"""Outcomes of what an API server answered, in words that say what to do."""

from collections.abc import Mapping

from actuators.action import Outcome, OutcomeStatus, Scalar
from serving.kubernetes.cluster_error import CONFLICT, TOO_MANY, ClusterError

Facts = Mapping[str, Scalar]
NONE: Facts = {}
_SERVER_ERROR = 500


def done(says: str, before: Facts, after: Facts) -> Outcome:
    """The world is as asked."""
    return Outcome(OutcomeStatus.DONE, says, before, after)


def failed(says: str, facts: Facts = NONE, *, permanent: bool = False) -> Outcome:
    """Nothing was changed, and the target stands as `facts` say."""
    return Outcome(OutcomeStatus.FAILED, says, facts, facts, permanent=permanent)


def unknown(says: str, before: Facts = NONE) -> Outcome:
    """Nobody can say yet."""
    return Outcome(OutcomeStatus.UNKNOWN, says, before)


def in_doubt(error: ClusterError) -> bool:
    """Whether a write that ended so may have been carried out all the same."""
    return error.status >= _SERVER_ERROR or (not error.answered and error.reached)


def of_error(doing: str, error: ClusterError, facts: Facts = NONE, *, read_only: bool = False) -> Outcome:
    """The outcome of a call that did not succeed. `doing` completes `cannot ...`; `read_only`: it could change nothing."""
    if not read_only and in_doubt(error):
        return unknown(f"cannot tell whether it was done to {doing}: {error.says}", facts)
    if error.forbidden:
        says = f"cannot {doing}, because the warden has not the right to: {error.says}"
        return failed(f"{says}; see actuators/kubernetes/rights.yaml for the family that holds it", facts, permanent=True)
    if error.status == TOO_MANY:
        later = "" if error.retry_after is None else f" (asks to come back after {error.retry_after:g} s)"
        return failed(f"cannot {doing} now: {error.says}{later}", facts)
    if error.status == CONFLICT:
        return failed(f"cannot {doing}, since it changed meanwhile: {error.says}", facts)
    return failed(f"cannot {doing}: {error.says}", facts, permanent=error.hopeless)
