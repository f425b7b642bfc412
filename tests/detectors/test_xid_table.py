"""The table of XIDs, and the reading of what drivers say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.xid import Xid, XidAction, action_of, meaning_of, parse_table, parse_xid, xid_table

A = XidAction

KERNEL_LINES = [
    ("NVRM: Xid (PCI:0000:9b:00): 79, pid=1234, GPU has fallen off the bus.", 79),
    ("[111111111.111] NVRM: Xid (PCI:0000:05:00): 48, pid='<unknown>', name=<unknown>, DBE (double bit error)", 48),
    ("NVRM: Xid (PCI:0000:00:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000)", 149),
    ("NVRM: Xid (0000:03:00): 14, Channel 00000001", 14),
]


def test_the_table_holds_nvidias_codes_once_each() -> None:
    table = xid_table()
    assert set(table) == set(range(1, 173))
    assert {entry.action for entry in table.values()} == set(XidAction)


@pytest.mark.parametrize(
    ("code", "action"),
    [
        *((code, A.RESTART_APP) for code in (13, 31, 94)),
        *((code, A.RESET_GPU) for code in (46, 48, 62, 64, 95, 109, 119, 120, 140)),
        *((code, A.REBOOT_NODE) for code in (79, 151)),
        *((code, A.IGNORE) for code in (43, 63, 92)),
        *((code, A.FOLLOW_OTHER) for code in (45, 171, 172)),
        *((code, A.CHECK) for code in (54, 78, 142)),
    ],
)
def test_the_immediate_action_of_a_code_is_nvidias(code: int, action: A) -> None:
    assert xid_table()[code].action is action
    assert action_of(Xid(code, "")) is action


@pytest.mark.parametrize(("line", "code"), KERNEL_LINES)
def test_kernel_lines_are_read(line: str, code: int) -> None:
    xid = parse_xid(line)
    assert xid is not None
    assert xid.code == code


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("154: GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", A.RESET_GPU),
        ("154: GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", A.REBOOT_NODE),
        ("154: GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", A.IGNORE),
        ("154: GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", A.RESET_GPU),
        ("154: whatever", A.IGNORE),
        ("145: RLW_REMAP Nonfatal XC0", A.IGNORE),
        ("145: RLW_REMAP Fatal XC0", A.RESET_GPU),
    ],
)
def test_the_text_settles_what_the_code_leaves_open(text: str, action: A) -> None:
    xid = parse_xid(text)
    assert xid is not None
    assert action_of(xid) is action


@given(code=st.integers(0, 99_999), detail=st.text(max_size=80))
def test_every_event_with_a_number_and_a_colon_is_read_and_has_an_action(code: int, detail: str) -> None:
    xid = parse_xid(f"{code}: {detail}")
    assert xid is not None
    if "xid" not in detail.lower():
        assert xid.code == code
    assert isinstance(action_of(xid), XidAction)
    assert meaning_of(xid.code)


@given(text=st.text(max_size=200))
def test_no_text_whatever_breaks_the_reading(text: str) -> None:
    xid = parse_xid(text)
    assert xid is None or (0 <= xid.code <= 99_999 and isinstance(action_of(xid), XidAction))


@pytest.mark.parametrize(
    "text", ["", "GPU has fallen off the bus", "NVRM: GPU Board Serial Number: 1650124014249", ":", "79 years"]
)
def test_what_names_no_code_is_none(text: str) -> None:
    assert parse_xid(text) is None


HEAD = "code,name,meaning,bucket,action"


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (["x,A,b,C,ignore"], "line 2"),
        (["1,A,b,C,explode"], "explode"),
        (["1,A,b,C,ignore", "1,B,b,C,ignore"], "code 1 again"),
        (["1,A"], "line 2"),
    ],
)
def test_a_broken_table_is_refused_with_its_line(rows: list[str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_table([HEAD, *rows])


@given(st.dictionaries(st.integers(1, 10_000), st.sampled_from(sorted(XidAction)), max_size=20))
def test_a_sound_table_is_read_as_written(actions: dict[int, str]) -> None:
    table = parse_table([HEAD, *(f"{code},N,m,B,{action}" for code, action in actions.items())])
    assert {code: entry.action for code, entry in table.items()} == actions
