"""What the catalog answers over several runs: cells, evidence apart, history, releases, what is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from audit.dashboard.catalog import Catalog
from audit.dashboard.links import op_slug
from tests.dashboard.made_runs import H200, MI250X, MI300X, ROCM_71, ROCM_72, SIM, healthy_keys, write_run

CatalogOf = Callable[[Path], Catalog]
KEYS = healthy_keys(6)
ARANGE, DIV, POW, RECIPROCAL = KEYS[:4]
OPS = ("aten::arange.start_step", "aten::div.Tensor", "aten::pow.Scalar", "aten::reciprocal.default")


def statuses(catalog: Catalog, op: str) -> list[tuple[str, str, bool]]:
    """(stack, status, varies) of an op's cells."""
    stacks = {stack.slug: f"{stack.evidence} {stack.runtime}" for stack in catalog.stacks()}
    return [(stacks[cell.stack_slug], cell.status, cell.varies) for cell in catalog.matrix(op_slug(op))]


def test_the_keys_are_of_the_ops_that_the_tests_name(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    assert tuple(op.op for op in catalog_of(tmp_path).ops() if op.op in OPS) == OPS
    assert [key.partition("-")[0] for key in KEYS[:4]] == ["arange", "div", "pow", "reciprocal"]


# --- cells ----------------------------------------------------------------------------------------------------------


def test_evidence_levels_and_stacks_have_cells_of_their_own(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", wrong=[ARANGE])
    write_run(tmp_path / "b", environment=ROCM_71, raising=[ARANGE])
    write_run(tmp_path / "c", device=H200, environment={"torch": "2.13.0+cu128", "cuda": "12.8"})
    write_run(tmp_path / "d", device=SIM, environment={"torch": "2.13.0+cpu"})
    assert statuses(catalog_of(tmp_path), OPS[0]) == [
        ("measured ROCm 7.1.0", "unsupported", False),
        ("measured ROCm 7.2.1", "divergent", False),
        ("stand-in CUDA 12.8", "supported", False),
        ("simulated ", "supported", False),
    ]


def test_no_count_has_two_evidence_levels(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", wrong=[ARANGE])
    write_run(tmp_path / "b", device=SIM, environment={"torch": "2.13.0+cpu"})
    catalog = catalog_of(tmp_path)
    [op] = (op for op in catalog.ops() if op.op == OPS[0])
    assert [(one.evidence, one.tally.by_status, one.worst) for one in op.by_evidence] == [
        ("measured", (("divergent", 1),), "divergent"),
        ("simulated", (("supported", 1),), "supported"),
    ]
    assert [share.text for share in catalog.site().shares] == [
        "83.3 % supported: 5 of 6 cases; 0 % inconclusive",
        "simulated: findings in 0 of 6 cases; 0 % inconclusive",
    ]


def test_what_a_profiler_recorded_is_no_evidence_of_right_answers(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", header={"source": {"kind": "imported", "name": "llama_train.py"}})
    catalog = catalog_of(tmp_path)
    assert [(stack.evidence, stack.is_imported) for stack in catalog.stacks()] == [
        ("measured", False),
        ("measured", True),
    ]
    assert len({gpu.slug for gpu in catalog.gpus()}) == 2


def test_a_simulated_device_with_faults_is_another_than_a_healthy_one(catalog_of: CatalogOf, tmp_path: Path) -> None:
    faulty = {**SIM, "properties": {"faults": "aten::mm.default", "fault_file": "/home/x/../mi/broken.py"}}
    write_run(tmp_path / "a", device=SIM)
    write_run(tmp_path / "b", device=faulty)
    assert [gpu.name for gpu in catalog_of(tmp_path).gpus()] == [
        "simulated device", "simulated device, faults of broken.py"
    ]  # fmt: skip


def test_the_newest_run_of_a_stack_counts_and_a_disagreement_is_kept(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", created="2026-11-01T00:00:00+00:00", raising=[ARANGE])
    write_run(tmp_path / "b", created="2026-11-02T00:00:00+00:00", wrong=[ARANGE])
    write_run(tmp_path / "c", created="2026-11-03T00:00:00+00:00", wrong=[ARANGE])
    catalog = catalog_of(tmp_path)
    assert statuses(catalog, OPS[0]) == [("measured ROCm 7.2.1", "divergent", True)]
    assert statuses(catalog, OPS[1]) == [("measured ROCm 7.2.1", "supported", False)]
    [signature] = catalog.signatures(op_slug(OPS[0]))
    [seen] = signature.observations
    assert (seen.status, seen.statuses, seen.n_runs, seen.newest) == (
        "divergent", ("divergent", "unsupported"), 3, "2026-11-03"
    )  # fmt: skip
    assert (seen.worst_ratio, seen.allowance, seen.codes) == (400.0, 8.0, ("NUM201",))
    assert seen.reason.startswith("output is off by 0.5 from fp64")


def test_a_cell_counts_its_cases_and_its_runs(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", created="2026-11-01T00:00:00+00:00")
    write_run(tmp_path / "b", created="2026-11-02T00:00:00+00:00", wrong=KEYS[4:5])
    [cell] = catalog_of(tmp_path).matrix(op_slug("aten::mul.Tensor"))
    assert (cell.tally.by_status, cell.n_runs, cell.newest) == ((("divergent", 1), ("supported", 1)), 2, "2026-11-02")


def test_the_matrix_is_the_same_whole_and_op_by_op(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", wrong=[ARANGE])
    write_run(tmp_path / "b", device=H200, environment={"torch": "2.13.0+cu128", "cuda": "12.8"})
    catalog = catalog_of(tmp_path)
    assert list(catalog.matrix()) == [cell for op in catalog.ops() for cell in catalog.matrix(op.slug)]


def test_findings_of_an_op_are_grouped_by_their_words(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", raising=[ARANGE])
    write_run(tmp_path / "b", device=MI250X, raising=[ARANGE])
    [found] = catalog_of(tmp_path).findings(op_slug(OPS[0]))
    assert (found.code, found.status, found.n_cases, found.key, len(found.stack_slugs)) == (
        "SUP101", "unsupported", 2, ARANGE, 2
    )  # fmt: skip


# --- sets of cases --------------------------------------------------------------------------------------------------


def test_the_same_cases_are_the_same_set_on_any_stack(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", device=H200, environment={"torch": "2.13.0+cu128", "cuda": "12.8"})
    write_run(tmp_path / "c", keys=KEYS[:5])
    catalog = catalog_of(tmp_path)
    versions = {row.path.split("/")[1]: row.share.cases.version for row in catalog.runs()}
    assert versions["a"] == versions["b"] != versions["c"]
    assert [gpu.share.cases.version for gpu in catalog.gpus()] == [versions["a"]] * 2
    [model] = catalog.models()
    assert (model.n_runs, model.n_sets) == (3, 2)


# --- runs -----------------------------------------------------------------------------------------------------------


def test_a_run_is_told_with_its_copies_and_its_end(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "x/a", left_out=[POW])
    (tmp_path / "x/b").mkdir()
    (tmp_path / "x/b/run.jsonl").write_bytes((tmp_path / "x/a/run.jsonl").read_bytes())
    catalog = catalog_of(tmp_path / "x")
    [row] = catalog.runs()
    page = catalog.run(row.slug)
    assert (row.path, page.copies) == ("x/a/run.jsonl", ("x/b/run.jsonl",))
    assert row.share.tally.by_status == (("inconclusive", 1), ("supported", 5))
    assert dict(page.environment)["rocm"] == "7.2.1"
    first = next(catalog.cases(row.slug))
    assert (first.key, first.status, first.codes) == (POW, "inconclusive", ("INC906",))
    assert catalog.site().n_copies == 1


def test_what_is_not_there_is_a_key_error(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    with pytest.raises(KeyError):
        catalog_of(tmp_path).run("no-such-run")


def test_a_clock_that_cannot_be_is_flagged(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", created="1970-01-01T00:00:10+00:00")
    write_run(tmp_path / "b", created="2026-11-20T00:00:00+00:00", environment=ROCM_71)
    write_run(tmp_path / "c", created="2033-01-01T00:00:00+00:00", environment=ROCM_71, wrong=[DIV])
    catalog = catalog_of(tmp_path)
    assert [(row.path.split("/")[1], row.clock, row.date) for row in catalog.runs()] == [
        ("a", "past", ""), ("c", "future", ""), ("b", "ok", "2026-11-20")
    ]  # fmt: skip
    assert catalog.site().n_odd_clocks == 2
    assert catalog.site().newest == "2026-11-20"


def test_a_run_has_its_day_and_time_in_utc_wherever_it_was_made(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", created="2026-11-01T23:30:00-02:00")
    write_run(tmp_path / "b", created="2026-11-02T04:15:00Z", environment=ROCM_71)
    write_run(tmp_path / "c", created="2026-11-02T05:45:00", device=MI250X)
    write_run(tmp_path / "d", created="1970-01-01T00:00:10+00:00", device=H200)
    assert sorted((row.path.split("/")[1], row.date, row.time) for row in catalog_of(tmp_path).runs()) == [
        ("a", "2026-11-02", "01:30"), ("b", "2026-11-02", "04:15"), ("c", "2026-11-02", "05:45"), ("d", "", "")
    ]  # fmt: skip


# --- what changed ---------------------------------------------------------------------------------------------------


def test_a_change_is_told_with_what_differs_around_it(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", created="2026-11-01T00:00:00+00:00", environment=ROCM_71, wrong=[DIV])
    write_run(tmp_path / "b", created="2026-11-02T00:00:00+00:00", environment=ROCM_72, wrong=[ARANGE], left_out=[POW])
    [step] = catalog_of(tmp_path).transitions()
    assert step.cause == ("torch 2.12.1+rocm7.1 → 2.13.0+rocm7.2; hip 7.1.25424 → 7.2.26015; rocm 7.1.0 → 7.2.1")
    assert [(change.key, change.before, change.after, change.direction) for change in step.changes] == [
        (ARANGE, "supported", "divergent", "worse"),
        (DIV, "divergent", "supported", "better"),
        (POW, "supported", "inconclusive", "unknown"),
    ]
    assert (step.n_common, step.n_worse, step.n_better, step.n_unknown) == (6, 1, 1, 1)


def test_a_change_on_the_same_stack_has_no_known_cause(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", created="2026-11-01T00:00:00+00:00")
    write_run(tmp_path / "b", created="2026-11-02T00:00:00+00:00", wrong=[ARANGE])
    [step] = catalog_of(tmp_path).transitions()
    assert step.cause == "nothing known changed"


def test_runs_of_other_gpus_and_sources_are_no_history_of_each_other(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", created="2026-11-01T00:00:00+00:00")
    write_run(tmp_path / "b", created="2026-11-02T00:00:00+00:00", device=MI250X, wrong=[ARANGE])
    write_run(tmp_path / "c", created="2026-11-03T00:00:00+00:00", source="other.py", wrong=[ARANGE])
    assert catalog_of(tmp_path).transitions() == ()


def test_a_case_is_compared_with_the_last_run_that_has_it(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", created="2026-11-01T00:00:00+00:00")
    write_run(tmp_path / "b", created="2026-11-02T00:00:00+00:00", keys=KEYS[1:])
    write_run(tmp_path / "c", created="2026-11-03T00:00:00+00:00", wrong=[ARANGE])
    catalog = catalog_of(tmp_path)
    [step] = catalog.transitions()
    assert (step.before.date, step.after.date, step.n_worse) == ("2026-11-01", "2026-11-03", 1)
    [model] = catalog.models()
    whole = catalog.transitions(model=model.slug)
    assert [(one.before.date, one.after.date, one.n_new, one.n_gone) for one in whole] == [
        ("2026-11-02", "2026-11-03", 0, 0),
        ("2026-11-01", "2026-11-03", 0, 0),
        ("2026-11-01", "2026-11-02", 0, 1),
    ]


def test_the_history_of_an_op_has_its_changes_alone(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", created="2026-11-01T00:00:00+00:00")
    write_run(tmp_path / "b", created="2026-11-02T00:00:00+00:00", wrong=[ARANGE, DIV])
    catalog = catalog_of(tmp_path)
    [step] = catalog.transitions(op=op_slug(OPS[1]))
    assert ([change.key for change in step.changes], step.n_worse) == ([DIV], 2)
    assert catalog.transitions(op=op_slug(OPS[2])) == ()
    assert catalog.transitions(limit=0) == ()


def test_the_last_release_is_compared_with_the_one_before(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", environment={"torch": "2.9.1+rocm6.4"}, raising=KEYS)
    write_run(tmp_path / "b", environment=ROCM_71, wrong=[DIV], keys=KEYS[:5])
    write_run(tmp_path / "c", environment=ROCM_72, wrong=[ARANGE], left_out=[POW])
    [change] = catalog_of(tmp_path).releases()
    assert (change.gpu.name, change.before.torch, change.after.torch) == (
        "AMD Instinct MI300X", "2.12.1+rocm7.1", "2.13.0+rocm7.2"
    )  # fmt: skip
    assert (change.n_common, change.n_inconclusive, change.n_only_before, change.n_only_after) == (5, 1, 0, 1)
    assert [(one.key, one.direction) for one in change.changes] == [
        (ARANGE, "worse"), (DIV, "better"), (POW, "unknown")
    ]  # fmt: skip
    worse, better, _ = change.changes
    assert not worse.reason.startswith("before: ")
    assert better.reason.startswith("before: output is off by")


def test_an_op_on_a_gpu_has_each_case_once_with_its_newest_run_whatever_the_versions(
    catalog_of: CatalogOf, tmp_path: Path
) -> None:
    write_run(tmp_path / "a", environment=ROCM_71, wrong=[DIV], keys=KEYS, created="2026-11-01T10:00:00+00:00")
    write_run(tmp_path / "b", environment=ROCM_72, raising=[ARANGE], keys=[ARANGE, DIV])
    catalog = catalog_of(tmp_path)
    found = {one.op: one for one in catalog.on_gpus()}
    assert found["aten::div.Tensor"].tally.by_status == (("supported", 1),)
    assert found["aten::arange.start_step"].tally.by_status == (("unsupported", 1),)
    assert (found["aten::pow.Scalar"].op_class, found["aten::pow.Scalar"].gpu_slug) == (
        "elementwise", catalog.gpus()[0].slug
    )  # fmt: skip
    [gpu] = catalog.gpus()
    assert sum(one.tally.total for one in found.values()) == gpu.share.tally.total == len(KEYS)


# --- what is missing ------------------------------------------------------------------------------------------------


def test_what_was_never_tested_is_named(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", left_out=[POW])
    write_run(tmp_path / "b", device=H200, keys=KEYS[:2], environment={"torch": "2.13.0+cu128", "cuda": "12.8"})
    mi300x, h200 = catalog_of(tmp_path).untested()
    assert mi300x.known_version == "2.13.0"
    assert mi300x.n_known_ops > 900
    assert "aten::mm.default" in mi300x.ops
    assert "aten::reciprocal.default" not in mi300x.ops
    assert "aten::reciprocal.default" in h200.ops
    assert (mi300x.elsewhere, h200.elsewhere[:2]) == (
        (), (("aten::mul.Tensor", "float32"), ("aten::pow.Scalar", "float32"))
    )  # fmt: skip
    assert [(one.op, one.n_cases) for one in mi300x.inconclusive] == [("aten::pow.Scalar", 1)]
    assert sum(n for _, n, _ in mi300x.by_class) == len(mi300x.ops)
    assert sum(n for _, _, n in mi300x.by_class) == mi300x.n_known_ops
    assert ("attention", 0) not in [(name, n) for name, n, _ in mi300x.by_class]


# --- what a page depends on -----------------------------------------------------------------------------------------


def test_a_digest_changes_with_what_it_is_about_and_with_nothing_else(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", created="2026-11-01T00:00:00+00:00", keys=KEYS[:2])
    before = catalog_of(tmp_path)
    write_run(tmp_path / "b", created="2026-11-02T00:00:00+00:00", keys=KEYS[:1], device=MI250X, source="other.py")
    after = catalog_of(tmp_path)
    arange, div = (op_slug(op) for op in OPS[:2])
    [run] = before.runs()
    assert before.digest("op", arange) != after.digest("op", arange)
    assert before.digest("op", div) == after.digest("op", div)
    assert before.digest("run", run.slug) == after.digest("run", run.slug)
    assert before.digest("model", run.model_slug) == after.digest("model", run.model_slug)
    assert before.digest("gpu", run.stack.gpu_slug) == after.digest("gpu", run.stack.gpu_slug)
    assert before.digest("site") != after.digest("site")


def test_devices_of_one_name_and_other_evidence_never_share_an_address(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", device=MI300X)
    write_run(tmp_path / "b", device={**MI300X, "backend": "cuda"})
    write_run(tmp_path / "c", device={**MI300X, "backend": "sim"})
    slugs = [gpu.slug for gpu in catalog_of(tmp_path).gpus()]
    assert [slug.partition("-amd")[0] for slug in slugs] == ["measured", "stand-in", "simulated"]


def test_a_release_without_a_case_in_common_is_passed_over(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", environment={"torch": "2.9.1+rocm6.4"}, keys=KEYS[:2], raising=[ARANGE])
    write_run(tmp_path / "b", environment=ROCM_71, keys=KEYS[3:])
    write_run(tmp_path / "c", environment=ROCM_72, keys=KEYS[:3])
    [change] = catalog_of(tmp_path).releases()
    assert (change.before.torch, change.after.torch, change.n_better) == ("2.9.1+rocm6.4", "2.13.0+rocm7.2", 1)
