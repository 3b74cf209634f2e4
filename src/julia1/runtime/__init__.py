"""From questions to answers on a CPU: probe, variant, engine, decider. Needs ONNX Runtime, tokenizers, NumPy only."""

from julia1.runtime.cpu import Cpu, probe
from julia1.runtime.decider import Decider, load
from julia1.runtime.limits import usable_cores
from julia1.runtime.variants import choose_variant

__all__ = ["Cpu", "Decider", "choose_variant", "load", "probe", "usable_cores"]
