"""Choose the variant of a bundle that this CPU runs safely and fastest."""

from __future__ import annotations

from julia1.bundle import Bundle, Variant
from julia1.errors import BundleError, EngineError, InputError
from julia1.runtime.cpu import Cpu
from julia1.runtime.engines import cannot_run

_PREFERENCE = {"int8": 0, "fp32": 1}


def choose_variant(
    bundle: Bundle, cpu: Cpu, wanted: str | None = None, engine: str | None = None
) -> tuple[Variant, str]:
    """The variant to load, and why.

    Int8 before fp32 among those whose needs this CPU meets.

    Args:
        bundle: where the variants are.
        cpu: the probed CPU.
        wanted: a variant's name, to overrule the choice (but never to load what cannot run).
        engine: what is to run it; each variant's own when ``None``.

    Raises:
        EngineError: no variant, or not the wanted one, runs on this CPU.
        InputError: there is no variant of that name.
    """
    if wanted is not None:
        try:
            variant = bundle.variant(wanted)
        except BundleError as error:  # the name is at fault here, not the bundle
            raise InputError(str(error)) from None
        missing = missing_needs(variant, cpu) or cannot_run(engine, variant)
        if missing:
            raise EngineError(f"the variant {wanted!r} cannot run here: {missing}. Leave the choice to julia1")
        return variant, "asked for"
    refused: list[str] = []
    for variant in sorted(bundle.manifest.variants, key=lambda v: _PREFERENCE.get(v.precision, 2)):
        missing = missing_needs(variant, cpu) or cannot_run(engine, variant)
        if not missing:
            return variant, "; ".join([f"the fastest that this CPU runs exactly ({cpu.architecture})", *refused])
        refused.append(f"not {variant.name}: {missing}")
    raise EngineError(f"no variant of {bundle.manifest.name} runs on this CPU: {'; '.join(refused)}")


def missing_needs(variant: Variant, cpu: Cpu) -> str:
    """What the CPU lacks for a variant, in words; empty when it can run."""
    if not variant.requires:
        return ""
    if cpu.architecture not in variant.requires:
        return f"it is made for {', '.join(variant.requires)}, this is {cpu.architecture}"
    missing = [feature for feature in variant.requires[cpu.architecture] if feature not in cpu.features]
    return f"the CPU has no {', '.join(missing)}" if missing else ""
