"""A story as a Slack message: Block Kit with a plain-text fallback, within Slack's limits, with nothing left unescaped.

Limits: https://docs.slack.dev/reference/block-kit/blocks (header 150 characters, section text 3,000, 50 blocks); escaping
and dates: https://docs.slack.dev/messaging/formatting-message-text.
"""

from collections.abc import Sequence
from typing import Any

from slack_sdk.models.blocks import Block, ContextBlock, HeaderBlock, MarkdownTextObject, PlainTextObject, SectionBlock

from agent.report.layout import Section, Style, clock_time, date_time, opening, plain, sections
from agent.report.outlook import Outlook
from agent.report.story import Story
from agent.report.wording import sentence

HEADER_LIMIT = 150
SECTION_LIMIT = 3_000
FALLBACK_LIMIT = 4_000  # longer top-level text is cut by Slack somewhere
LINE_LIMIT = 1_400  # of one line, so that at least two fit into a section

SIGNS = {
    Outlook.WORKING: ":hourglass_flowing_sand:",
    Outlook.ASKS: ":raised_hand:",
    Outlook.RECOMMENDS: ":bulb:",
    Outlook.GAVE_UP: ":rotating_light:",
    Outlook.REPAIRED: ":white_check_mark:",
    Outlook.HEALED: ":white_check_mark:",
    Outlook.DISMISSED: ":heavy_minus_sign:",
}


def escaped(text: str) -> str:
    """`text` with the three characters that Slack gives a meaning replaced, cut to a length that fits into any section."""
    short = text if len(text) <= LINE_LIMIT else text[: LINE_LIMIT - 3] + "..."
    safe = short.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    while len(safe) > SECTION_LIMIT // 2:  # made of characters that grow when they are escaped
        short = short[: len(short) // 2].rstrip(".") + "..."
        safe = short.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return safe


def local_time(at: float) -> str:
    """`at` as a time of day where the reader is; in UTC where Slack cannot tell."""
    return f"<!date^{int(at)}^{{time_secs}}|{clock_time(at)}>"


def local_date(at: float) -> str:
    """`at` with its date, where the reader is; in UTC where Slack cannot tell."""
    return f"<!date^{int(at)}^{{date_short_pretty}} {{time_secs}}|{date_time(at)}>"


SLACK = Style(local_time, local_date, escaped)


def message(story: Story, cell: str) -> dict[str, Any]:
    """The payload that tells the whole `story`."""
    return {"text": _fallback(plain(story)), "blocks": [block.to_dict() for block in _blocks(story, cell)]}


def follow_up(story: Story, cell: str) -> dict[str, Any]:
    """The payload that says in a line or two how an incident came out that was told before."""
    rest = " ".join(story.todo[:2]) if story.needs_person else f"Cost: {sentence(story.cost)}" if story.cost else ""
    line = f"{SIGNS[story.outlook]} *{escaped(_short(story.headline))}.* {escaped(f'{story.served} {rest}'.strip())}"
    text = f"{story.headline}. {story.served} {rest}".strip()
    blocks: list[Block] = [_section(line), _context(story, cell)]
    return {"text": _fallback(text), "blocks": [block.to_dict() for block in blocks]}


def _blocks(story: Story, cell: str) -> list[Block]:
    header = _short(f"{SIGNS[story.outlook]} {story.headline}")
    blocks: list[Block] = [HeaderBlock(text=PlainTextObject(text=header, emoji=True))]
    blocks.append(_section("\n".join(opening(story, SLACK))))
    blocks += [_section(_titled(section)) for section in sections(story, SLACK)]
    return [*blocks, _context(story, cell)]


def _short(text: str) -> str:
    return text if len(text) <= HEADER_LIMIT else text[: HEADER_LIMIT - 3] + "..."


def _section(text: str) -> SectionBlock:
    return SectionBlock(text=MarkdownTextObject(text=text, verbatim=True))


def _context(story: Story, cell: str) -> ContextBlock:
    return ContextBlock(
        elements=[MarkdownTextObject(text=f"Incident {escaped(story.incident)}, cell {escaped(cell)}", verbatim=True)]
    )


def _titled(section: Section) -> str:
    title = f"*{section.title}*"
    return "\n".join([title, *_fitting([f"• {line}" for line in section.lines], SECTION_LIMIT - len(title) - 1)])


def _fitting(lines: Sequence[str], room: int) -> list[str]:
    """As many whole `lines` as fit into `room` characters: the first and the newest ones, for the middle tells least."""
    if sum(map(len, lines)) + len(lines) <= room:
        return list(lines)
    note = f"• ... and {len(lines)} more in between"
    room -= len(note) + 1
    head, tail = 0, 0
    while head + tail < len(lines):
        from_head = head <= tail
        line = lines[head] if from_head else lines[len(lines) - 1 - tail]
        if len(line) + 1 > room:
            break
        room -= len(line) + 1
        head, tail = (head + 1, tail) if from_head else (head, tail + 1)
    left = len(lines) - head - tail
    return [*lines[:head], f"• ... and {left} more in between", *lines[len(lines) - tail :]]


def _fallback(text: str) -> str:
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return safe if len(safe) <= FALLBACK_LIMIT else safe[: FALLBACK_LIMIT - 3].rpartition(" ")[0] + "..."
