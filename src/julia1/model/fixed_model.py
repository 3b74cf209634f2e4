"""An encoder with fixed heads: what a model was trained to answer, all heads in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from julia1.bundle.heads import FeatureSpec, HeadSpec
from julia1.errors import InputError
from julia1.model.backbone import put_pooler, take_pooler
from julia1.model.languages import LanguageGate, LanguageHeads

WINDOW_WEIGHT = ":window_weight"
"""Key of the windows' weights among the outputs; no head has such a name."""
TEXT_VECTOR = ":text_vector"
"""Key of the mean vectors of texts, which are there while a teacher's are learned from."""
POOLINGS = ("cls", "mean", "max", "pooler")
DEFAULT_POOLING = "cls+mean+max"
LIKENESS_SCALE = 20.0
LIKENESS_CENTRE = 0.8
"""Where cosines of a pretrained sentence encoder lie: heads of several labels start near even, not saturated."""


class FixedHead(nn.Module):
    """A two-layer perceptron over the pooled vectors; heads with named labels add the likeness of text and label.

    The label's vector starts as the encoder's reading of its name, so that a head knows what its labels mean before it
    has seen a row; it is trained like any weight.
    """

    def __init__(
        self,
        inputs: int,
        width: int,
        outputs: int,
        dropout: float,
        vectors: Tensor | None = None,
        languages: int = 0,
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(inputs, width)
        self.out = nn.Linear(width, outputs)
        self.languages = LanguageHeads(languages, inputs, width, outputs, dropout) if languages else None
        self.vectors = None if vectors is None else nn.Parameter(vectors.clone())
        if self.vectors is not None:
            self.log_scale = nn.Parameter(torch.tensor([LIKENESS_SCALE]).log())
            self.centre = nn.Parameter(torch.tensor([LIKENESS_CENTRE]))
            with torch.no_grad():
                self.out.weight.mul_(0.1)

    def forward(self, pooled: Tensor, mean: Tensor, gate: Tensor | None = None) -> Tensor:
        """``pooled`` [rows, inputs], ``mean`` [rows, width] and ``gate`` [rows, languages] to [rows, outputs]."""
        found: Tensor = self.out(self.dropout(nn.functional.gelu(self.hidden(self.dropout(pooled)))))
        if self.languages is not None:
            assert gate is not None
            found = found + self.languages(pooled, gate)
        if self.vectors is None:
            return found
        cosine = nn.functional.normalize(mean, dim=-1) @ nn.functional.normalize(self.vectors, dim=-1).T
        return found + self.log_scale.exp() * (cosine - self.centre)


class VectorHead(nn.Module):
    """A unit vector of a text, to be compared with that of another: what the encoder reads, moved by a perceptron."""

    vectors = None

    def __init__(self, inputs: int, inner: int, width: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(inputs, inner)
        self.out = nn.Linear(inner, width)
        self.log_scale = nn.Parameter(torch.tensor([LIKENESS_SCALE]).log())
        self.centre = nn.Parameter(torch.tensor([LIKENESS_CENTRE]))
        with torch.no_grad():
            self.out.weight.mul_(0.1)

    def forward(self, pooled: Tensor, mean: Tensor) -> Tensor:
        """``pooled`` [rows, inputs] and ``mean`` [rows, width] to [rows, width]."""
        moved = self.out(self.dropout(nn.functional.gelu(self.hidden(self.dropout(pooled)))))
        return nn.functional.normalize(mean + moved, dim=-1)

    def scores(self, vectors: Tensor, others: Tensor) -> Tensor:
        """Logits of pairs of unit vectors, ``[..., width]`` each."""
        found: Tensor = self.log_scale.exp() * ((vectors * others).sum(-1) - self.centre)
        return found


class TagHead(nn.Module):
    """A two-layer perceptron over each token."""

    vectors = None

    def __init__(self, width: int, inner: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(width, inner)
        self.out = nn.Linear(inner, outputs)

    def forward(self, states: Tensor) -> Tensor:
        """``states`` [rows, tokens, width] to [rows, tokens, outputs]."""
        found: Tensor = self.out(self.dropout(nn.functional.gelu(self.hidden(self.dropout(states)))))
        return found


class FeatureEncoder(nn.Module):
    """Numbers (standardised, with a flag where one is missing) and categories to one vector."""

    centre: Tensor
    spread: Tensor

    def __init__(self, features: FeatureSpec, width: int = 64) -> None:
        super().__init__()
        statistics = [features.numbers[name] for name in features.numbers]
        self.register_buffer("centre", torch.tensor([mean for mean, _ in statistics]))
        self.register_buffer("spread", torch.tensor([deviation for _, deviation in statistics]))
        sizes = [len(values) + 1 for values in features.categories.values()]
        self.tables = nn.ModuleList(nn.Embedding(size, min(16, 2 + size // 2)) for size in sizes)
        inputs = 2 * len(statistics) + sum(table.embedding_dim for table in self.tables)  # type: ignore[misc]
        self.mix = nn.Linear(inputs, width)

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        """``numbers`` [rows, numbers], NaN where one is missing; ``categories`` [rows, categories], 0 for unknown."""
        missing = numbers.isnan()
        standard = torch.where(missing, 0.0, (numbers - self.centre) / self.spread)
        parts = [standard, missing.to(standard.dtype)]
        parts += [table(categories[:, i]) for i, table in enumerate(self.tables)]
        return nn.functional.gelu(self.mix(torch.cat(parts, dim=-1)))


class FixedModel(nn.Module):
    """Encoder, pooling, features and heads.

    Args:
        encoder: a Hugging Face encoder.
        heads: what is answered.
        features: structured features, if there are any.
        pooling: parts of ``cls``, ``mean``, ``max`` and ``pooler`` joined by ``+``; the last is a layer over [CLS] that
            some encoders come with.
        hidden: width of the heads' inner layer; the encoder's width when ``None``.
        dropout: in the heads.
        vectors: for choice and labels heads, the encoder's vector of each label, fp32 ``[labels, width]``.
        weigh_windows: learn what a window of a long text weighs among the others.
        languages: those with heads of their own, for each head that reads whole texts.
    """

    def __init__(
        self,
        encoder: nn.Module,
        heads: Sequence[HeadSpec],
        features: FeatureSpec | None = None,
        *,
        pooling: str = DEFAULT_POOLING,
        hidden: int | None = None,
        dropout: float = 0.1,
        vectors: Mapping[str, Tensor] | None = None,
        weigh_windows: bool = False,
        languages: Sequence[str] = (),
    ) -> None:
        super().__init__()
        if not heads:
            raise InputError("a model needs at least one head")
        self.pooling = parse_pooling(pooling)
        pooler = take_pooler(encoder)
        if "pooler" in self.pooling and pooler is None:
            raise InputError("pooling: this encoder comes without a pooler: take cls, mean or max")
        self.pooler = pooler if "pooler" in self.pooling else None
        self.encoder = encoder
        config: Any = encoder.config
        width = int(config.hidden_size)
        self.specs = tuple(heads)
        self.feature_spec = features or FeatureSpec()
        self.hidden = hidden or width
        self.gives_vectors = False
        self.languages = tuple(languages)
        self.gate = LanguageGate(int(config.vocab_size), len(languages)) if languages else None
        self.features = FeatureEncoder(features) if features else None
        inputs = width * len(self.pooling) + (self.features.mix.out_features if self.features is not None else 0)
        self.heads = nn.ModuleList(
            TagHead(width, self.hidden, spec.outputs, dropout)
            if spec.kind == "tags"
            else VectorHead(inputs, self.hidden, width, dropout)
            if spec.size
            else FixedHead(
                inputs, self.hidden, spec.outputs, dropout, (vectors or {}).get(spec.name), len(self.languages)
            )
            for spec in heads
        )
        self.window_weight: nn.Linear | None = None
        if weigh_windows:
            self.window_weight = nn.Linear(inputs, 1)
            nn.init.zeros_(self.window_weight.weight)  # to begin with, the mean
            nn.init.zeros_(self.window_weight.bias)

    def description(self) -> dict[str, Any]:
        """All but the encoder and the weights, as plain JSON data."""
        return {
            "heads": [spec.to_dict() for spec in self.specs],
            "features": self.feature_spec.to_dict(),
            "pooling": "+".join(self.pooling),
            "hidden": self.hidden,
            "weigh_windows": self.window_weight is not None,
            "languages": list(self.languages),
            "vectors": [
                spec.name for spec, head in zip(self.specs, self.heads, strict=True) if head.vectors is not None
            ],
        }

    @classmethod
    def from_description(cls, encoder: nn.Module, data: Mapping[str, Any]) -> FixedModel:
        """An untrained model from what ``description`` gave."""
        config: Any = encoder.config
        if "pooler" in data["pooling"].split("+"):
            width = int(config.hidden_size)
            put_pooler(encoder, nn.Linear(width, width))
        heads = [HeadSpec.from_dict(head) for head in data["heads"]]
        features = FeatureSpec.from_dict(data["features"])
        vectors = {
            head.name: torch.zeros(head.outputs, config.hidden_size) for head in heads if head.name in data["vectors"]
        }
        return cls(
            encoder,
            heads,
            features,
            pooling=data["pooling"],
            hidden=data["hidden"],
            vectors=vectors,
            weigh_windows=data.get("weigh_windows", False),
            languages=data.get("languages", ()),
        )

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        numbers: Tensor | None = None,
        categories: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Head name to its outputs, ``[rows, outputs]``: logits, or for a value the number in units of its spread.

        The outputs of a tags head are logits of each token, ``[rows, tokens, outputs]``; those of a head that reads two
        texts apart are a unit vector of each. Where windows are weighed, ``WINDOW_WEIGHT`` has the logit of each row.

        Args:
            input_ids, attention_mask: int64 ``[rows, tokens]``; the mask is 1 at tokens and 0 at padding.
            numbers, categories: see ``FeatureEncoder``; needed when the model has features.
        """
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state.float()
        vectors = pool(states, attention_mask)
        if self.pooler is not None:
            vectors["pooler"] = self.pooler(vectors["cls"]).tanh()
        parts = [vectors[name] for name in self.pooling]
        if self.features is not None:
            assert numbers is not None
            assert categories is not None
            parts.append(self.features(numbers, categories))
        pooled = torch.cat(parts, dim=-1)
        weights = {} if self.window_weight is None else {WINDOW_WEIGHT: self.window_weight(pooled)}
        if self.gives_vectors and self.training:
            weights[TEXT_VECTOR] = vectors["mean"]
        gate = None if self.gate is None else self.gate(input_ids, attention_mask)
        return weights | {
            spec.name: head(states)
            if isinstance(head, TagHead)
            else head(pooled, vectors["mean"], gate)
            if isinstance(head, FixedHead)
            else head(pooled, vectors["mean"])
            for spec, head in zip(self.specs, self.heads, strict=True)
        }


def parse_pooling(text: str) -> tuple[str, ...]:
    """The parts of a pooling; raises ``InputError`` for an unknown or repeated one."""
    parts = tuple(text.split("+"))
    unknown = [part for part in parts if part not in POOLINGS]
    if unknown or len(set(parts)) < len(parts):
        raise InputError(f"pooling is {text!r}: take each of {', '.join(POOLINGS)} once at most, joined by +")
    return parts


def pool(states: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
    """First token, mean and maximum over the tokens of each row, each ``[rows, width]``."""
    inside = attention_mask.unsqueeze(-1).to(states.dtype)
    return {
        "cls": states[:, 0],
        "mean": (states * inside).sum(1) / inside.sum(1).clamp_min(1.0),
        "max": states.masked_fill(inside == 0, torch.finfo(states.dtype).min).amax(1),
    }
