"""What an encoder's config says about its export, before anything is trained: what stops it, what will cost.

Only what holds for the graphs of this package is told. Sizes that are no multiple of 4 or 32, which some int8 kernels
dislike, are not among it: ONNX Runtime multiplies 383 columns as fast as 384.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from julia1.errors import VerificationError
from julia1.export.encoder_graph import FIXED_ENCODERS, require_known
from julia1.export.modernbert_graph import FULL, SLIDING

MOST_TABLE = 64e6
"""Bytes of an embedding table, above which it is most of a bundle."""
PIECE_MEMORY = 1100
"""Bytes that a piece takes in the memory of the library's tokenizer; a Unigram vocabulary takes a third of it."""


@dataclass(frozen=True)
class Finding:
    """What one field of a config leads to.

    Attributes:
        field, value: of the config.
        effect: what happens.
        mend: what to do about it.
        stops: whether no bundle could be written.
    """

    field: str
    value: Any
    effect: str
    mend: str
    stops: bool = False

    def __str__(self) -> str:
        return f"{self.field} is {self.value!r}: {self.effect}; {self.mend}"


def check_operators(config: Mapping[str, Any], max_tokens: int, known: Sequence[str] = FIXED_ENCODERS) -> list[Finding]:
    """Everything that can be told of an encoder, what stops its export first.

    Args:
        config: its Hugging Face config, defaults included.
        max_tokens: tokens that are to be read of a text.
        known: the model types that there are graphs for.
    """
    try:
        require_known(config, known)
    except VerificationError as error:
        field = "hidden_act" if config.get("model_type") in known else "model_type"
        field = "hidden_activation" if field not in config else field
        mend = f"name one of {', '.join(known)} with gelu"
        return [Finding(field, config.get(field), str(error).partition(";")[0], mend, stops=True)]
    findings = [*_attention(config), *_storage(config), *_costs(config, max_tokens)]
    return sorted(findings, key=lambda finding: not finding.stops)


def require_exportable(config: Mapping[str, Any], known: Sequence[str] = FIXED_ENCODERS) -> None:
    """Raise ``VerificationError`` for an encoder whose bundle would be refused after its training."""
    for finding in check_operators(config, 0, known):
        if finding.stops:
            raise VerificationError(f"this encoder cannot be exported: {finding}")


def _attention(config: Mapping[str, Any]) -> list[Finding]:
    found = []
    other = "name an encoder without it"
    if config.get("is_decoder"):
        found.append(
            Finding("is_decoder", True, "its tokens see only those before them, in the graph all", other, stops=True)
        )
    if config.get("add_cross_attention"):
        effect = "layers that read another sequence have no place in the graph"
        found.append(Finding("add_cross_attention", True, effect, other, stops=True))
    if pruned := config.get("pruned_heads"):
        effect = "transformers and the graph take all layers to have the same heads"
        found.append(Finding("pruned_heads", pruned, effect, "name the model before it was pruned", stops=True))
    if config.get("model_type") == "modernbert":
        for kind, rope in (config.get("rope_parameters") or {}).items():
            how = rope.get("rope_type", "default") if isinstance(rope, Mapping) else "default"
            if kind in (FULL, SLIDING) and how != "default":
                effect = "no graph is known for rotary positions of this type"
                found.append(Finding(f"rope_parameters.{kind}.rope_type", how, effect, other, stops=True))
    positions = config.get("position_embedding_type", "absolute")
    if positions != "absolute":
        effect = "it is read with absolute positions, not with those that it was pretrained with"
        found.append(Finding("position_embedding_type", positions, effect, "expect it to learn worse, or name another"))
    return found


def _storage(config: Mapping[str, Any]) -> list[Finding]:
    found = []
    if quantization := config.get("quantization_config"):
        method = quantization.get("quant_method") if isinstance(quantization, Mapping) else quantization
        effect = "its weights are stored in the form of another library"
        mend = "name the model as it was before"
        found.append(Finding("quantization_config", method, effect, mend, stops=True))
    if custom := config.get("auto_map"):
        code = custom.get("AutoModel", next(iter(custom.values()), "")) if isinstance(custom, Mapping) else custom
        effect = f"its own code is never run, transformers' {config.get('model_type')} is taken instead"
        mend = "compare both with julia1 diagnose if the code computes anything else"
        found.append(Finding("auto_map", code, effect, mend))
    return found


def _costs(config: Mapping[str, Any], max_tokens: int) -> list[Finding]:
    found = []
    pieces, width = int(config.get("vocab_size") or 0), int(config.get("hidden_size") or 0)
    table = pieces * (width + 4)  # codes of one byte, and a scale a row
    if table > MOST_TABLE:
        effect = (
            f"the embedding table takes {table / 1e6:,.0f} MB of the bundle and as much memory, the tokenizer up to "
            f"{pieces * PIECE_MEMORY / 1e6:,.0f} MB more"
        )
        mend = "name an encoder with a smaller vocabulary, such as that of the bundled model"
        found.append(Finding("vocab_size", pieces, effect, mend))
    window = config.get("local_attention")
    slides = config.get("model_type") == "modernbert" and SLIDING in config.get("layer_types", ())
    if slides and window and max_tokens > int(window):
        effect = "the graph masks what lies outside and saves nothing: time grows with the square of the tokens"
        mend = f"read {window} tokens at a time with --max-tokens and --windows if it is too slow"
        found.append(Finding("local_attention", window, effect, mend))
    return found
