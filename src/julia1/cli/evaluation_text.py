"""What ``julia1 train`` prints of how far a trained model can be believed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from julia1.cli.printing import columns, one_line

if TYPE_CHECKING:
    from julia1.train.package import Fitted


def evaluation_lines(fitted: Fitted) -> list[str]:
    """Calibration and coverage on the test rows, or the validation rows without them; guarantees; the report's path."""
    part = "test" if "test" in fitted.evaluation else "validation"
    table = [["", "ECE before", "after", "answered at 90 %", "95 %", "99 % accuracy"]]
    for name, one in fitted.evaluation[part].items():
        if one.before is not None and one.after is not None:
            errors = [f"{one.before.ece:.3f}", f"{one.after.ece:.3f}"]
            table.append([one_line(name), *errors, *(f"{share:.1%}" for share in one.coverage_at.values())])
    lines = [f"calibration, {part} rows", *columns(table)] if len(table) > 1 else []
    lines += [
        f"{one_line(one.head)}: abstains below {one.threshold:.4g} and answers {one.answered:.1%}; at most "
        f"{one.max_error:.1%} of the answers are wrong, with confidence {one.confidence:.1%}"
        for one in fitted.guarantees
        if one.threshold is not None
    ]
    return [*lines, f"report: {fitted.report}"]


def warn_of_guarantees(fitted: Fitted) -> bool:
    """Whether something could not be guaranteed that was asked for, which is told on standard error."""
    warnings = [one.warning for one in fitted.guarantees if one.warning]
    for warning in warnings:
        print(f"julia1: warning: {one_line(warning)}", file=sys.stderr, flush=True)
    return bool(warnings)
