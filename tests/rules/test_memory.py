"""NUM207..209: memory that was not written, not repeated, or not to be written."""

from __future__ import annotations

import pytest

from audit.places import IndexRun, IndexSet, Places


def test_elements_never_written_are_divergent(build):
    comparison = build.comparison(n_unwritten=5, first_unwritten=(3, 0))
    [finding] = build.findings(build.measurement(comparison))
    assert (finding.code, finding.status) == ("NUM207", "divergent")
    assert "5 of 16 elements were never written, the first at [3, 0]" in finding.message


@pytest.mark.parametrize("op", ["aten::empty.memory_format", "aten::empty_like.default", "aten::new_empty.default"])
def test_uninitialised_outputs_are_what_some_ops_promise(build, op):
    measurement = build.measurement(build.comparison("metadata", n_unwritten=16, n_not_repeated=16))
    assert build.codes(measurement, build.case(op)) == [("NUM211", "supported")]


def test_a_float_result_that_changes_from_run_to_run_is_a_note(build):
    [finding] = build.findings(build.measurement(build.comparison(n_not_repeated=2)))
    assert (finding.code, finding.status) == ("NUM208", "supported")
    assert finding.message == "output 0: 2 of 2 runs on the same input differ, in 2 of 16 elements"


def test_the_runs_that_differ_are_counted_and_the_elements_placed(build):
    row = IndexSet(4, 1, 1, (IndexRun(2, 2),), 2, width=1)
    places = Places(4, 16, (row, IndexSet(4, 4, 1, (IndexRun(0, 3),), 3, width=4)), 4)
    comparison = build.comparison(n_not_repeated=4, n_runs=5, n_runs_differing=1, not_repeated=places)
    [finding] = build.findings(build.measurement(comparison))
    assert finding.message == "output 0: 1 of 5 runs on the same input differ, in 4 of 16 elements: row 2"
    assert (finding.data["n_runs"], finding.data["places"]) == (5, "row 2")


def test_elements_never_written_hide_none_that_did_not_repeat(build):
    comparison = build.comparison(n_unwritten=5, first_unwritten=(3, 0), n_not_repeated=2)
    assert build.codes(build.measurement(comparison)) == [("NUM207", "divergent"), ("NUM208", "supported")]


def test_it_is_divergent_where_the_program_promised_determinism(build):
    measurement = build.measurement(build.comparison(n_not_repeated=2))
    promised = {"deterministic_algorithms": "True"}
    assert build.codes(measurement, environment=promised) == [("NUM208", "divergent")]


def test_it_is_divergent_where_the_output_is_exact(build):
    assert build.codes(build.measurement(build.comparison("exact", n_not_repeated=1))) == [("NUM208", "divergent")]


@pytest.mark.parametrize("op", ["aten::topk.default", "aten::scatter_.src", "aten::max_pool2d_with_indices.default"])
def test_an_op_that_may_choose_among_equals_need_not_repeat(build, op):
    measurement = build.measurement(build.comparison("exact", n_not_repeated=1))
    assert build.codes(measurement, build.case(op)) == [("NUM208", "supported")]


def test_random_outputs_need_not_repeat(build):
    measurement = build.measurement(build.comparison("metadata", n_not_repeated=16))
    assert build.codes(measurement) == [("NUM211", "supported")]


def test_a_write_beside_an_operand_is_divergent_and_names_it(build):
    [finding] = build.findings(build.measurement(guards_broken=("argument 1",)))
    assert (finding.code, finding.status) == ("NUM209", "divergent")
    assert "argument 1" in finding.message
