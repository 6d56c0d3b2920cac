"""FBK301: round trips through the host, and what is none."""

from __future__ import annotations

import pytest

from audit.rules.host_traffic import custom_ops
from audit.rules.thresholds import DEFAULT
from audit.schema import Copy, NotAudited, Path


def _copies(*copies: Copy) -> Path:
    return Path(observed=True, complete=True, copies=copies)


def _status(build, *copies, op="aten::mm.default", operand_bytes=128, **comparison):
    measurement = build.measurement(build.comparison(**comparison), path=_copies(*copies), operand_bytes=operand_bytes)
    return build.codes(measurement, build.case(op))


def test_operands_down_and_a_result_up_is_falling_back(build):
    codes = _status(build, Copy("DtoH", 128, 2), Copy("HtoD", 64))
    assert codes == [("FBK301", "falling_back")]


def test_the_message_tells_the_bytes(build):
    path = _copies(Copy("DtoH", 3 << 20, 2), Copy("HtoD", 1 << 20))
    [finding] = build.findings(build.measurement(path=path, operand_bytes=3 << 20))
    assert finding.message == (
        "went through the host: 3.0 MiB to the host in 2 copies, 1.0 MiB to the device in 1 copy, "
        "for operands of 3.0 MiB"
    )


def test_a_note_names_the_one_direction_there_was(build):
    [finding] = build.findings(build.measurement(path=_copies(Copy("DtoH", 4)), operand_bytes=4096))
    assert finding.message == "host traffic: 4 B to the host in 1 copy"


def test_copies_whose_bytes_nobody_knows_are_a_note_and_not_silence(build):
    path = _copies(Copy("DtoH", 0, 2), Copy("HtoD", 0))
    [finding] = build.findings(build.measurement(path=path, operand_bytes=4096))
    assert (finding.code, finding.status) == ("FBK301", "supported")
    assert finding.message == (
        "host traffic: 2 copies of unknown size to the host, 1 copy of unknown size to the device"
    )


@pytest.mark.parametrize(
    "copies",
    [
        (Copy("DtoH", 8),),
        (Copy("DtoH", 16, 2), Copy("HtoD", 8)),
        (Copy("HtoD", 128),),
        (Copy("DtoH", 128),),
        (Copy("DtoH", 31), Copy("HtoD", 128)),
    ],
)
def test_scalars_and_one_way_traffic_are_notes(build, copies):
    assert _status(build, *copies) == [("FBK301", "supported")]


def test_scalar_reads_of_a_tiny_operand_stay_a_note(build):
    """nonzero reads its count back: 8 bytes, though that is half of the operand."""
    assert _status(build, Copy("DtoH", 8), Copy("HtoD", 8), operand_bytes=16) == [("FBK301", "supported")]


def test_a_reduction_done_on_the_host_sends_little_back(build):
    scalar = build.fact()
    codes = _status(
        build, Copy("DtoH", 4096), Copy("HtoD", 4), operand_bytes=4096, expected=scalar, actual=scalar, n_elements=1
    )
    assert codes == [("FBK301", "falling_back")]


def test_a_quarter_of_the_operands_is_the_border(build):
    at, below = Copy("DtoH", 1024), Copy("DtoH", 1023)
    up = Copy("HtoD", 4096)
    assert _status(build, at, up, operand_bytes=4096) == [("FBK301", "falling_back")]
    assert _status(build, below, up, operand_bytes=4096) == [("FBK301", "supported")]


def test_copies_are_what_a_copy_op_is_for(build):
    assert _status(build, Copy("DtoH", 128), Copy("HtoD", 128), op="aten::_to_copy.default") == [
        ("FBK301", "supported")
    ]


def test_no_traffic_is_no_finding(build):
    assert _status(build) == []


def _custom_op(*copies: Copy) -> NotAudited:
    return NotAudited("mine::op.default", "custom op: its code is not in the trace", 2, copies=copies)


def test_an_op_of_the_programs_own_that_goes_through_the_host_is_a_root_cause(build):
    item = _custom_op(Copy("DtoH", 8 << 20, 2), Copy("HtoD", 8 << 20, 2))
    [finding] = custom_ops([item], DEFAULT)
    assert (finding.code, finding.status) == ("FBK301", "falling_back")
    assert finding.message == (
        "the op mine::op.default goes through the host: 8.0 MiB to the host in 2 copies, 8.0 MiB to the device in 2 "
        "copies, in 2 calls"
    )


@pytest.mark.parametrize(
    "copies",
    [(), (Copy("DtoH", 8 << 20),), (Copy("HtoD", 8 << 20),), (Copy("DtoH", 16, 2), Copy("HtoD", 8 << 20))],
    ids=["none", "down alone", "up alone", "two numbers down"],
)
def test_an_op_of_the_programs_own_that_reads_a_number_back_is_none(copies):
    assert list(custom_ops([_custom_op(*copies)], DEFAULT)) == []
