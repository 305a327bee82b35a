"""What ``penstock checkpoint inspect`` and ``validate`` say of a location."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.batched.inspection import inspect_path
from penstock.checkpoint.tools import Finding, OperatorFacts, SourceFacts, inspect, validate
from penstock.errors import PenstockError
from penstock.status.model import Kind


@dataclass(frozen=True, slots=True)
class Checks:
    """Both, as far as they were asked for."""

    operators: tuple[OperatorFacts, ...] = ()
    sources: tuple[SourceFacts, ...] = ()
    files: int = 0
    findings: tuple[Finding, ...] = ()
    """Those of the validation."""
    problems: tuple[str, ...] = ()


def read_checks(path: str, kind: Kind, *, validated: bool) -> Checks:
    """Return what is found in a location; a validation reads every file of it."""
    try:
        if kind == "batched":
            found = inspect_path(path)
            checkpoints = sum(topic.kept for topic in found.topics)
            return Checks(files=checkpoints, findings=found.findings)
        seen = inspect(path, last=1)
        if not validated:
            return Checks(seen.operators, seen.sources)
        judged = validate(path)
        return Checks(seen.operators, seen.sources, judged.files, judged.findings)
    except PenstockError as error:
        return Checks(problems=(str(error),))
