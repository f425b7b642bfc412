"""`fleetwarden incidents`, `explain`, `approve` and `reject`: reading incidents from the journal, and answering them.

Exit codes: 0 fine, 1 something was found or refused (see each command), 2 bad usage or a journal that cannot be read.
"""

import getpass
from pathlib import Path
from typing import Annotated

import typer

from agent.cli.tables import AsJson, JournalAt, StateDir, explained, fail, incident_table, journal_of, print_all, print_json
from agent.explanation import explanation, named, not_found, summary
from agent.incident import Incident
from agent.journal.port import Answer, Journal, Note
from serving.clock import SystemClock

IncidentName = Annotated[str, typer.Argument(help="Its id, the beginning of one, or `last`.", show_default=False)]
By = Annotated[str | None, typer.Option("--by", help="Who answers; your user name by default.")]

_ANSWERS = {
    Answer.ALREADY_ANSWERED: "somebody answered before",
    Answer.EXPIRED: "the request has expired; the warden asks again when it still needs to",
    Answer.NOT_ASKED: "the warden has not asked for anything",
    Answer.ENDED: "the incident has ended",
    Answer.NO_SUCH_INCIDENT: "the incident is not in the journal any more",
}


def incidents(
    state_dir: StateDir = None,
    journal: JournalAt = None,
    show_all: Annotated[bool, typer.Option("--all", "-a", help="Those that are over, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """List incidents that are open or wait for a person (`--all`: every one), oldest first; `!` needs you now.

    JSON: a list of {incident, cause, entity, state, ending, opened_at, ended_at, gone_since, attempt, score, enough,
    needs_person, says, cost}; times in Unix seconds. Exit code: 0 nothing is open, 1 something is, 2 no journal to read.
    """
    with journal_of(state_dir, journal) as record:
        found = record.incidents() if show_all else tuple(i for i in record.standing() if _concerns(i))
    rows = [summary(incident) for incident in found]
    if as_json:
        print_json(rows)
    elif rows:
        print_all([incident_table(rows, SystemClock().now())])
    else:
        typer.echo("no incident so far" if show_all else "nothing is open; `fleetwarden incidents --all` lists what was")
    raise typer.Exit(1 if any(map(_concerns, found)) else 0)


def explain(
    incident: IncidentName = "last", state_dir: StateDir = None, journal: JournalAt = None, as_json: AsJson = False
) -> None:
    """Tell the whole of one incident: why it is thought to be that, what speaks against it, what was decided and done.

    JSON: {incident: as in `incidents`, headline, what, since, evidence, against, missing, rivals, ruled_out, operations,
    verifications, served, cost, todo, timeline}; the keys of the lists are in agent.explanation. Exit code: 0, or 2 when
    there is no such incident.
    """
    with journal_of(state_dir, journal) as record:
        found = _find(record, incident)
        events = [entry.event for entry in record.events(incident=found.id) if not isinstance(entry.event, Note)]
    told = explanation(found, events)
    if as_json:
        print_json(told)
    else:
        print_all(explained(told, SystemClock().now()))


def approve(
    incident: IncidentName, by: By = None, state_dir: StateDir = None, journal: JournalAt = None, as_json: AsJson = False
) -> None:
    """Allow the repair that an incident asks approval for.

    JSON: {incident, answer, by}. Exit code: 0 it counts, 1 it does not (answered before, expired, not asked), 2 no such
    incident.
    """
    _answer(incident, by, state_dir, journal, approved=True, as_json=as_json)


def reject(
    incident: IncidentName, by: By = None, state_dir: StateDir = None, journal: JournalAt = None, as_json: AsJson = False
) -> None:
    """Forbid the repair that an incident asks approval for. JSON and exit codes as for `approve`."""
    _answer(incident, by, state_dir, journal, approved=False, as_json=as_json)


def who(by: str | None) -> str:
    """The name to write down: the one given, or the user's."""
    if by is not None:
        return by.strip() or fail("--by needs a name, for the record")
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return fail("your user has no name here: say who you are with --by")


def _answer(
    name: str, by: str | None, state_dir: Path | None, journal: str | None, *, approved: bool, as_json: bool
) -> None:
    person = who(by)
    with journal_of(state_dir, journal) as record:
        found = _find(record, name)
        give = record.approve if approved else record.reject
        answer = give(found.id, person, SystemClock().now())
    counts = answer is Answer.ACCEPTED
    if as_json:
        print_json({"incident": found.id, "answer": str(answer), "by": person})
    elif counts:
        typer.echo(f"{found.id}: {'approved' if approved else 'rejected'} by {person}")
    else:
        typer.echo(f"{found.id}: this does not count, {_ANSWERS[answer]}", err=True)
    raise typer.Exit(0 if counts else 1)


def _find(record: Journal, text: str) -> Incident:
    found = record.incident(text)
    if found is not None:
        return found
    known = record.incidents()
    return named(known, text) or fail(not_found(known, text))


def _concerns(incident: Incident) -> bool:
    """Open, or ended in the hands of a person: what a look at the fleet should show."""
    return not incident.ended or (incident.standing and incident.state == "escalated")
