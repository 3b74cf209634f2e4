"""Which variant of a bundle a CPU gets, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from julia1 import EngineError, InputError
from julia1.bundle import Bundle, Variant
from julia1.runtime import Cpu, choose_variant

FULL = Cpu("x86_64", frozenset({"avx2", "avx512f", "avx512_vnni", "vnni"}), 4)
OLD = Cpu("x86_64", frozenset({"avx2"}), 4)
ARM = Cpu("aarch64", frozenset({"asimd"}), 4)
OTHER = Cpu("riscv64", frozenset({"v"}), 4)
SILENT = Cpu("x86_64", frozenset(), 4)


@pytest.fixture
def bundle(tiny_bundle: Path) -> Bundle:
    return Bundle.open(tiny_bundle)


def with_variants(bundle: Bundle, *variants: Variant) -> Bundle:
    return replace(bundle, manifest=replace(bundle.manifest, variants=variants))


@pytest.mark.parametrize("cpu", [FULL, ARM])
def test_int8_comes_first_where_it_is_exact(bundle: Bundle, cpu: Cpu) -> None:
    variant, reason = choose_variant(bundle, cpu)
    assert variant.name == "int8"
    assert cpu.architecture in reason


def test_the_order_in_the_manifest_does_not_matter(bundle: Bundle) -> None:
    turned = with_variants(bundle, *reversed(bundle.manifest.variants))
    assert choose_variant(turned, FULL)[0].name == "int8"


@pytest.mark.parametrize(
    ("cpu", "words"),
    [
        (OLD, "not int8: the CPU has no vnni"),
        (SILENT, "not int8: the CPU has no vnni"),
        (OTHER, "not int8: it is made for x86_64, aarch64, this is riscv64"),
    ],
)
def test_fp32_takes_over_and_the_reason_says_why(bundle: Bundle, cpu: Cpu, words: str) -> None:
    variant, reason = choose_variant(bundle, cpu)
    assert variant.name == "fp32"
    assert words in reason


def test_a_variant_that_is_asked_for_is_taken(bundle: Bundle) -> None:
    assert choose_variant(bundle, FULL, "fp32") == (bundle.variant("fp32"), "asked for")
    assert choose_variant(bundle, FULL, "int8")[0].name == "int8"


def test_asking_never_loads_what_would_answer_wrongly(bundle: Bundle) -> None:
    with pytest.raises(EngineError, match="'int8' cannot run here: the CPU has no vnni"):
        choose_variant(bundle, OLD, "int8")
    with pytest.raises(EngineError, match="this is riscv64"):
        choose_variant(bundle, OTHER, "int8")


def test_a_name_that_is_not_there_lists_those_that_are(bundle: Bundle) -> None:
    with pytest.raises(InputError, match="no variant 'int4'; it has: int8, fp32"):
        choose_variant(bundle, FULL, "int4")


def test_a_bundle_that_runs_nowhere_here_says_so_for_each_variant(bundle: Bundle) -> None:
    int8 = bundle.variant("int8")
    other = replace(int8, name="arm only", requires={"aarch64": ()})
    with pytest.raises(EngineError, match=r"no variant of tiny runs on this CPU: .*no vnni; .*made for aarch64"):
        choose_variant(with_variants(bundle, int8, other), OLD)


def test_every_missing_feature_is_named(bundle: Bundle) -> None:
    needy = replace(bundle.variant("int8"), requires={"x86_64": ("avx2", "vnni", "amx_int8")})
    with pytest.raises(EngineError, match="the CPU has no vnni, amx_int8"):
        choose_variant(with_variants(bundle, needy), OLD)
