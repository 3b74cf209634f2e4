"""Bundles of models with fixed heads and random weights, written without training; and a disk that is full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from julia1.bundle import Bundle, BundleWriter, EncodingSettings, Manifest, Variant
from julia1.bundle.heads import FeatureSpec, HeadSpec

WIDTH = 32
SHAPE = {"vocab_size": 448, "hidden_size": WIDTH, "num_attention_heads": 4, "intermediate_size": 48}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {**SHAPE, "model_type": "bert", "num_hidden_layers": 2, "max_position_embeddings": 64},
    "modernbert": {
        **SHAPE,
        "model_type": "modernbert",
        "num_hidden_layers": 4,
        "local_attention": 8,
        "global_attn_every_n_layers": 3,
        "max_position_embeddings": 64,
        "pad_token_id": 1,
        "cls_token_id": 0,
        "sep_token_id": 2,
        "bos_token_id": 0,
        "eos_token_id": 2,
    },
}
HEADS = (
    HeadSpec("topic", "choice", ("food", "music", "sport")),
    HeadSpec("late", "yesno", ("no", "yes")),
    HeadSpec("where", "tags", ("place",)),
    HeadSpec("alike", "match", size=WIDTH),
)
FEATURES = FeatureSpec({"age": (40.0, 12.0)}, {"plan": ("free", "paid")})
WINDOWED = EncodingSettings("fixed", 24, windows=3, overlap=4, aggregation="attention")


def new_model(
    kind: str, heads: Sequence[HeadSpec] = HEADS, features: FeatureSpec | None = FEATURES, seed: int = 3
) -> Any:
    """A model whose answers differ from text to text."""
    import torch

    from julia1.model import new_encoder
    from julia1.model.fixed_model import FixedModel

    torch.manual_seed(seed)
    encoder: Any = new_encoder(CONFIGS[kind])
    for name, parameter in encoder.named_parameters():
        centre, spread = (1.0, 0.2) if "norm" in name.lower() and name.endswith("weight") else (0.0, 0.15)
        torch.nn.init.normal_(parameter, centre, spread)
    vectors = {head.name: torch.randn(head.outputs, WIDTH) for head in heads if head.kind == "choice"}
    return FixedModel(encoder, heads, features, vectors=vectors, weigh_windows=bool(features)).eval()


def write_fixed(
    target: Path,
    tokenizer_file: Path,
    kind: str = "bert",
    heads: Sequence[HeadSpec] = HEADS,
    features: FeatureSpec | None = FEATURES,
    encoding: EncodingSettings = WINDOWED,
    model: Any = None,
) -> Bundle:
    """Round and write a model as ``julia1 train`` does, with its fp32 and int8 graphs."""
    import onnx

    from julia1.export import SharedWeights, fixed_graph
    from julia1.model import round_weights, save_weights

    model = model or new_model(kind, heads, features)
    round_weights(model)
    with BundleWriter(target) as writer:
        save_weights(model, writer.folder / "weights.safetensors")
        weights = writer.add(writer.folder / "weights.safetensors", "weights.safetensors")
        variants = []
        for precision in ("fp32", "int8"):
            path = writer.folder / f"model-{precision}.onnx"
            onnx.save_model(fixed_graph(SharedWeights(writer.folder / "weights.safetensors"), precision), path)
            files = (writer.add(path, path.name), weights)
            variants.append(Variant(precision, "onnxruntime", precision, files))
        return writer.finish(
            Manifest(
                name=f"toy-{kind}",
                version="1",
                kind="fixed",
                encoding=encoding,
                tokenizer=writer.add(tokenizer_file, "tokenizer.json"),
                calibration={},
                variants=tuple(variants),
                checkpoint=(weights,),
                heads=tuple(heads),
                features=features or FeatureSpec(),
            )
        )


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """No file can grow over so many bytes: writing fails in the middle, as on a full disk, for every library."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def grown_tokenizer(source: Path, target: Path, pieces: int) -> Path:
    """The same tokenizer with so many further pieces, of words that no text has."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(source))
    tokenizer.add_tokens([f"grown{number}" for number in range(pieces)])
    tokenizer.save(str(target))
    return target
