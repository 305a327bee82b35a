"""Changes of a location that are begun and not finished."""

from __future__ import annotations

import pytest

from penstock.checkpoint.tools import Plan, apply_plan
from penstock.checkpoint.tools.changes import apply


def interrupt(plan: Plan, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Apply so many changes of a plan, and die."""
    taken, count = apply._take_step, iter(range(after))

    def take_step(*args: object) -> None:
        if next(count, None) is None:
            raise KeyboardInterrupt
        taken(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(apply, "_take_step", take_step)
        with pytest.raises(KeyboardInterrupt):
            apply_plan(plan, stopped=True)
