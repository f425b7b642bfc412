"""Which signals an engine gives, which it lacks or gives under older names or too late, and what that blinds."""

from collections.abc import Iterable

from agent.checkup.sight import Sight, hindered
from agent.doctor.findings import Check, ok, problem, warning
from agent.report.phrases import SYMPTOMS
from detectors.catalogue import DETECTORS, Detector
from serving.telemetry.registry import Job, Registry

SHOWN = 6
EXPLAINED = 2  # detectors of which is said what they would find


def judged(
    check: str, subject: str, sight: Sight, registry: Registry, *, scraped: frozenset[str], stale: Iterable[str] = ()
) -> Check:
    """The verdict on the signals that one engine gives. `scraped` are those that the scraper itself tells of it.

    The front door's signals are counted as present here: what it lacks is said once, and not of every engine.
    """
    late = tuple(stale)
    own = {name: spec for name, spec in registry.of_job(Job.ENGINE).items() if name in sight.names or not spec.optional}
    present = frozenset(sight.names) - frozenset(late)
    older = {signal: name for signal, name in sight.older(registry).items() if signal in own}
    absent = [signal for signal in sight.absent(registry) if signal not in late]
    lacking = hindered(present | scraped | frozenset(registry.of_job(Job.DOOR)))
    blind = [one for one in lacking if one.blind]
    weak = [one.detector.name for one in lacking if not one.blind]
    details = {
        "present": {signal: name for signal, name in sorted(sight.names.items()) if signal in present and signal in own},
        "older_names": older,
        "stale": sorted(late),
        "absent": absent,
        "blind": [one.detector.name for one in blind],
        "weakened": weak,
    }
    count = f"{len(present & frozenset(own))} of {len(own)} signals present"
    parts = [count]
    if older:
        named = [f"{name} for {own[signal].names[0]}" for signal, name in older.items()]
        parts.append(f"under older names, which are understood: {_listed(named)}")
    if late:
        parts.append(f"stale: {_listed(sorted(late))}")
    if absent:
        parts.append(f"absent: {_listed([f'{signal} ({own[signal].names[0]})' for signal in absent])}")
    if blind:
        told = len(blind) <= EXPLAINED
        names = [f"{one.detector.name} ({_loss(one.detector)})" if told else one.detector.name for one in blind]
        parts.append(f"blind without them: {'; '.join(names) if told else ', '.join(names)}")
        todo = (
            "start vLLM without --disable-log-stats; if they were renamed, use a version of fleetwarden that knows the names"
        )
        return problem(check, subject, "; ".join(parts), todo, **details)
    if weak:
        parts.append(f"less sure without them: {', '.join(weak)}")
    if late:
        return warning(check, subject, "; ".join(parts), "see when the targets were last scraped", **details)
    if weak or older:
        todo = "" if not weak else "a newer vLLM exposes them; nothing else has to be done"
        return (
            warning(check, subject, "; ".join(parts), todo, **details)
            if weak
            else ok(check, subject, "; ".join(parts), **details)
        )
    return ok(check, subject, "; ".join(parts), **details)


def without_door(check: str, subject: str, registry: Registry, todo: str) -> Check:
    """The verdict on a fleet whose front door tells nothing."""
    used = frozenset[str]().union(*(detector.needs | detector.helped_by for detector in DETECTORS))
    lacking = hindered(used - frozenset(registry.of_job(Job.DOOR)))
    blind = [one.detector for one in lacking if one.blind]
    weak = [one.detector.name for one in lacking if not one.blind]
    parts = ["its signals are not there, so requests in flight are not known"]
    parts += [f"blind without them: {'; '.join(f'{one.name} ({_loss(one)})' for one in blind)}"] if blind else []
    parts += [f"less sure without them: {', '.join(weak)}"] if weak else []
    says = "; ".join(parts)
    return warning(check, subject, says, todo, blind=[detector.name for detector in blind], weakened=weak)


def _loss(detector: Detector) -> str:
    """What is no longer noticed without a detector, in words."""
    return ", ".join(SYMPTOMS[symptom] for symptom in sorted(detector.finds))


def _listed(things: list[str]) -> str:
    more = f" and {len(things) - SHOWN} more" if len(things) > SHOWN else ""
    return ", ".join(things[:SHOWN]) + more
