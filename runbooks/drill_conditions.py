"""What the conditions of drills can read: the fleet as the status page shows it, and users as the front door counts them."""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from cel_expr_python import cel

from runbooks.conditions import Condition, Variable, Vocabulary

USERS_SPAN_S = 30.0
"""Over so many seconds `requests`, `success` and `ttft` are taken: enough answers for a quantile at one request a second."""


def _number(means: str) -> Variable:
    return Variable(cel.Type.DOUBLE, means)


VARIABLES: Mapping[str, Variable] = MappingProxyType(
    {
        "engines": _number("engines of the fleet"),
        "serving": _number("engines that serve users (suspect ones included)"),
        "suspect": _number("engines that an open incident blames"),
        "drained": _number("engines that were taken out of rotation"),
        "ejected": _number("engines that the front door leaves out because their answers failed"),
        "down": _number("engines that do not answer their scrape"),
        "unseen": _number("engines of which nothing fresh is known"),
        "incidents": _number("open incidents"),
        "in_flight": _number("requests under way at the front door"),
        "waiting": _number("requests that wait in the engines' queues"),
        "kv_usage": _number("the fullest KV cache, 0 to 1"),
        "requests": _number(f"answers, good or bad, that users had in the last {USERS_SPAN_S:.0f} s"),
        "success": _number("share of those that were whole, 0 to 1"),
        "ttft": _number("seconds within which 95 % of first bytes came to users in that span"),
        "failed": _number("user requests that failed since the first injection"),
        "elapsed": _number("seconds since the first injection"),
    }
)
DRILL = Vocabulary(VARIABLES)


@lru_cache(maxsize=256)
def condition(text: str) -> Condition:
    """`text` as a condition of a drill. Raises runbooks.conditions.ConditionError."""
    return Condition.compile(text, "condition", vocabulary=DRILL)
