"""Errors that a user meets. Each carries its exit code and a slug that docs/messages.md explains."""

from __future__ import annotations

from typing import ClassVar


class AuditError(Exception):
    """A failure with one sentence for the user: what was expected, what came, where, what to do.

    ``str(error)`` ends in ``[slug]``; the slug is a heading of docs/messages.md and never changes meaning.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, slug: str) -> None:
        super().__init__(f"{message} [{slug}]")
        self.slug = slug


class UsageError(AuditError):
    """The command or its configuration is wrong; nothing was run. Exit code 2."""

    exit_code = 2


class UnfinishedError(AuditError):
    """The audit started and could not finish; what was written stays readable. Exit code 3."""

    exit_code = 3
