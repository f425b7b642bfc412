"""Whether another machine's clock agrees with ours, from what it says of its time."""

from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

from agent.checkup.asking import Heard
from agent.doctor.findings import Check, ok, problem, warning

AGREE_S = 2.0  # a Date header holds whole seconds, and asking takes time
WRONG_S = 5.0  # samples older than 7 s say nothing about now to the detectors, so clocks this far apart blind them


def of_header(check: str, subject: str, heard: Heard) -> Check | None:
    """The verdict on the clock behind an answer; None when the answer has no Date."""
    said = _date(heard.headers)
    if said is None:
        return None
    # The header was cut down to its second, so its middle is the best guess; the way there and back blurs the rest.
    return judged(check, subject, said + 0.5 - heard.at, 0.5 + heard.seconds / 2, stamps=False)


def judged(check: str, subject: str, ahead: float, blur: float, *, stamps: bool) -> Check:
    """The verdict on a clock that is `ahead` seconds of ours, known to within `blur`.

    `stamps`: it stamps the samples, so that a wrong one makes them look old, or of the future.
    """
    apart = max(0.0, abs(ahead) - blur)
    which = "ahead of" if ahead > 0 else "behind"
    details = {"ahead_seconds": round(ahead, 3), "blur_seconds": round(blur, 3)}
    if apart <= AGREE_S:
        return ok(check, subject, "its clock agrees with this machine's", **details)
    says = f"its clock is {abs(ahead):.1f} s {which} this machine's"
    if stamps and apart > WRONG_S:
        return problem(
            check,
            subject,
            f"{says}, so its samples look old or not yet taken",
            "run NTP or chrony on both machines",
            **details,
        )
    return warning(check, subject, says, "run NTP or chrony on both machines: times of starts and events are off", **details)


def _date(headers: Mapping[str, str]) -> float | None:
    try:
        moment = parsedate_to_datetime(headers.get("date", ""))
    except (TypeError, ValueError):
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
