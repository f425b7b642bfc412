"""What changed between two reports, a line each: for a watch that speaks only when there is news."""

from collections.abc import Iterator

from agent.checkup.report import CauseRow, CheckupReport


def changes(before: CheckupReport | None, after: CheckupReport) -> Iterator[str]:
    """One line for each cause that came, changed its rank of evidence or went, place lost or found, and the verdict."""
    had = {} if before is None else {(row.cause, row.entity): row for row in before.causes}
    has = {(row.cause, row.entity): row for row in after.causes}
    for key, row in has.items():
        earlier = had.get(key)
        if earlier is None or earlier.enough != row.enough:
            yield _told(row)
    for key, row in had.items():
        if key not in has:
            yield f"no longer seen: {row.headline} ({row.cause})"
    lost, found = _unread(before), _unread(after)
    yield from (f"cannot be read: {url} {says}" for url, says in found.items() if url not in lost)
    yield from (f"can be read again: {url}" for url in lost if url not in found)
    if before is None or before.verdict is not after.verdict:
        yield f"{after.verdict}: {after.says}"


def _told(row: CauseRow) -> str:
    shown = next((one.says for one in row.evidence if one.says), "")
    sure = f"score {row.score:.2f}" if row.enough else f"only suspected, score {row.score:.2f}"
    return f"{row.headline} ({row.cause}, {sure}){f': {shown}' if shown else ''}"


def _unread(report: CheckupReport | None) -> dict[str, str]:
    return {} if report is None else {row.url: row.says for row in report.unread}
