"""Makes a model smaller and faster, and proves that it kept its accuracy. Needs the extra ``optimize``.

Names are imported when first used: the command line reads the names of goals without onnx.
"""

from typing import TYPE_CHECKING

from julia1.lazy import lazy_names

if TYPE_CHECKING:
    from julia1.optimize.analysis import Analysis, analyse
    from julia1.optimize.config import OptimizeConfig, read_config
    from julia1.optimize.judging import Judgement, Thresholds, judge
    from julia1.optimize.models import open_model
    from julia1.optimize.running import Result, optimize

__all__ = [
    "Analysis",
    "Judgement",
    "OptimizeConfig",
    "Result",
    "Thresholds",
    "analyse",
    "judge",
    "open_model",
    "optimize",
    "read_config",
]

_MODULES = {
    "Analysis": "julia1.optimize.analysis",
    "Judgement": "julia1.optimize.judging",
    "OptimizeConfig": "julia1.optimize.config",
    "Result": "julia1.optimize.running",
    "Thresholds": "julia1.optimize.judging",
    "analyse": "julia1.optimize.analysis",
    "judge": "julia1.optimize.judging",
    "open_model": "julia1.optimize.models",
    "optimize": "julia1.optimize.running",
    "read_config": "julia1.optimize.config",
}

__getattr__ = lazy_names(__name__, _MODULES)
