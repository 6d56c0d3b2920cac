"""The pytest plugin: ``--rocm-audit`` turns on the fixture ``rocm_audit``, which audits what a callable runs.

Loaded by pytest wherever this package is installed: torch and the audit are imported when the fixture is called.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from audit.schema import Status
    from audit.verdicts import Judgement

FAIL_ON: tuple[Status, ...] = ("unsupported", "divergent")
#: Findings in the message of a failed test.
MAX_SHOWN = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rocm-audit")
    group.addoption("--rocm-audit", action="store_true", help="run the tests that audit their ops on a device")
    group.addoption("--rocm-audit-device", default="auto", metavar="DEVICE", help="auto, hip, cuda, sim, ... (auto)")


@dataclass
class Auditor:
    """Audits callables, each in a folder of its own under ``folder``."""

    device: str
    folder: Path
    n_audits: int = 0

    def __call__(
        self, function: Callable[..., Any], *args: Any, fail_on: Collection[Status] = FAIL_ON, **kwargs: Any
    ) -> Judgement:
        """Records what ``function`` runs, replays and judges it; fails the test on a case of a status in ``fail_on``.

        A reason to fail too: the audit could not finish, or nothing was run.
        """
        from audit.errors import AuditError

        self.n_audits += 1
        home = self.folder / f"audit-{self.n_audits}"
        try:
            judgement, code = _audited(self.device, home, function, args, kwargs)
        except AuditError as error:
            pytest.fail(str(error), pytrace=False)
        if code == 3:
            end = judgement.run.end
            pytest.fail(f"the audit could not finish: {end.reason if end is not None else 'no end'}", pytrace=False)
        if message := complaint(judgement, fail_on):
            pytest.fail(f"{message}\nreport: {home / 'run' / 'report.html'}", pytrace=False)
        return judgement


def _audited(
    device: str, home: Path, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Judgement, int]:
    import audit
    from audit.progress import Progress
    from audit.run_options import RunOptions
    from audit.session import run
    from audit.targets import find_target

    home.mkdir(parents=True)
    recorded = home / "calls.audit"
    with audit.trace(recorded):
        function(*args, **kwargs)
    target = find_target(str(recorded), False, ())
    options = RunOptions(target=target, output=home / "run", device=device, alternatives_limit_s=0.0)
    with Progress(quiet=True) as progress:
        return run(options, progress)


def complaint(judgement: Judgement, fail_on: Collection[Status]) -> str:
    """What is said of a judgement that has one of the statuses; empty where it has none."""
    if not judgement.has_any(fail_on):
        return ""
    lines = [
        f"{verdict.status}: {verdict.op} {verdict.signature}: {'; '.join(f.message for f in verdict.findings)}"
        for verdict in judgement.verdicts
        if verdict.status in fail_on
    ]
    lines += [f"{cause.status}: {cause.message}" for cause in judgement.root_causes if cause.status in fail_on]
    left = [f"and {len(lines) - MAX_SHOWN} more"] if len(lines) > MAX_SHOWN else []
    return "\n".join([judgement.headline, *lines[:MAX_SHOWN], *left])


@pytest.fixture
def rocm_audit(request: pytest.FixtureRequest, tmp_path: Path) -> Auditor:
    """``rocm_audit(function, *args)`` audits the ops of the call; skipped unless ``--rocm-audit`` is given."""
    if not request.config.getoption("--rocm-audit"):
        pytest.skip("audits on a device run with --rocm-audit")
    return Auditor(str(request.config.getoption("--rocm-audit-device")), tmp_path / "rocm-audit")
