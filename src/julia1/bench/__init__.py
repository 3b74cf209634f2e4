"""Does a bundle hold what it promises on this machine: soak and acceptance.

Needs what runs a bundle; PyTorch is asked for the reference where it is there, and imported then.
"""

from julia1.bench.acceptance import Acceptance, accept
from julia1.bench.labelled import label
from julia1.bench.soak_report import Limits, SoakReport, judge
from julia1.bench.soaking import Recording, soak
from julia1.bench.verdicts import Verdict
from julia1.bench.workload import Workload

__all__ = [
    "Acceptance",
    "Limits",
    "Recording",
    "SoakReport",
    "Verdict",
    "Workload",
    "accept",
    "judge",
    "label",
    "soak",
]
