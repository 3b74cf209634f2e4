"""Measuring a bundle on the machine at hand: tuning, soak, acceptance.

Needs what runs a bundle; PyTorch is asked for the reference where it is there, and imported then.
"""

from julia1.bench.acceptance import Acceptance, accept
from julia1.bench.labelled import label
from julia1.bench.soak_report import Limits, SoakReport, judge
from julia1.bench.soaking import Recording, soak
from julia1.bench.tuning import Measured, Setting, Wanted, search
from julia1.bench.verdicts import Verdict
from julia1.bench.workload import Workload

__all__ = [
    "Acceptance",
    "Limits",
    "Measured",
    "Recording",
    "Setting",
    "SoakReport",
    "Verdict",
    "Wanted",
    "Workload",
    "accept",
    "judge",
    "label",
    "search",
    "soak",
]
