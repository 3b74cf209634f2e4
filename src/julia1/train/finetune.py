"""Fine-tune fixed heads on labelled rows: length-bucketed batches, layer-wise rates, early stop, exact resume."""

from __future__ import annotations

import hashlib
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from julia1.bundle.heads import FeatureSpec, HeadSpec
from julia1.errors import InputError, TrainingError
from julia1.model.fixed_model import FixedModel
from julia1.text.tokenizer import TextTokenizer
from julia1.train.data.rows import ORDINAL_LEVELS, Answer, DataRow, Head, labels_of

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class FineTuning:
    """Hyper-parameters.

    Attributes:
        epochs: at most; training stops after ``patience`` epochs without a better validation metric.
        batch_tokens: padded tokens of a batch at most; rows of like length go together.
        batch_rows: rows of a batch at most.
        accumulate: batches for each optimizer step.
        learning_rate, head_learning_rate: of the encoder's last layer, and of the heads.
        layer_decay: factor of the rate from each layer to the one below.
        warmup: share of the steps in which the rate rises; it then falls to zero.
        class_weights: weigh labels by the square root of how rare they are.
        level_spread: an ordinal target is a bell over the levels, so many levels wide; 0 for the level alone.
        feature_dropout: share of structured features that are hidden from a step.
        train_embeddings: train the word embeddings too.
    """

    epochs: int = 10
    batch_rows: int = 32
    batch_tokens: int = 2048
    accumulate: int = 1
    learning_rate: float = 1e-4
    head_learning_rate: float = 1e-3
    layer_decay: float = 0.9
    weight_decay: float = 0.01
    warmup: float = 0.1
    clip_norm: float = 1.0
    dropout: float = 0.1
    feature_dropout: float = 0.1
    label_smoothing: float = 0.05
    class_weights: bool = False
    level_spread: float = 0.5
    patience: int = 2
    max_tokens: int = 256
    threads: int = 2
    bf16: bool = True
    train_embeddings: bool = False
    seed: int = 1


@dataclass(frozen=True)
class Item:
    """A row as the model takes it.

    Attributes:
        ids: piece ids with [CLS] and [SEP].
        targets: by head: probabilities of the labels, 0 or 1 for each of several labels, or one number.
        numbers, categories: features.
    """

    ids: list[int]
    targets: Mapping[str, npt.NDArray[np.float32]]
    numbers: tuple[float, ...] = ()
    categories: tuple[int, ...] = ()


def head_specs(heads: Mapping[str, Head], rows: Sequence[DataRow]) -> list[HeadSpec]:
    """The heads of a model for these questions; a score with few distinct values gets levels."""
    specs = []
    for head in heads.values():
        if head.kind == "yesno":
            specs.append(HeadSpec(head.name, "yesno", ("no", "yes")))
        elif head.kind == "score":
            values = np.array([float(row.answers[head.name]) for row in rows if head.name in row.answers])  # type: ignore[arg-type]
            levels = sorted(set(values.tolist()))
            if len(levels) <= ORDINAL_LEVELS:
                specs.append(HeadSpec(head.name, "score", tuple(f"{level:.15g}" for level in levels)))
            else:
                specs.append(
                    HeadSpec(head.name, "value", centre=float(values.mean()), spread=float(values.std()) or 1.0)
                )
        else:
            specs.append(HeadSpec(head.name, "labels" if head.kind == "labels" else "choice", head.labels))
    return specs


def feature_spec(rows: Sequence[DataRow], least: int = 2) -> FeatureSpec:
    """Numbers with their statistics, and categories with the values that at least ``least`` rows have."""
    numbers: dict[str, tuple[float, float]] = {}
    categories: dict[str, tuple[str, ...]] = {}
    for name in rows[0].features if rows else ():
        values = [row.features[name] for row in rows if row.features[name] is not None]
        kinds = {type(value) for value in values}
        if len(kinds) > 1:
            first = {type(row.features[name]): row.place for row in reversed(rows) if row.features[name] is not None}
            raise InputError(
                f"the feature {name!r} is a number at {first[float]} and a text at {first[str]}: give it one type"
            )
        if kinds == {float}:
            found = np.array(values, dtype=np.float64)
            numbers[name] = float(found.mean()), float(found.std()) or 1.0
        elif values:
            counts: dict[str, int] = {}
            for value in values:
                counts[str(value)] = counts.get(str(value), 0) + 1
            categories[name] = tuple(sorted(value for value, number in counts.items() if number >= least))
    return FeatureSpec(numbers, categories)


def make_items(
    rows: Sequence[DataRow],
    specs: Sequence[HeadSpec],
    tokenizer: TextTokenizer,
    settings: FineTuning,
    features: FeatureSpec | None = None,
) -> list[Item]:
    """Tokenize rows and turn their answers into targets.

    Raises:
        InputError: a row has a label that its head does not know, or a feature of another type than in training.
    """
    room = settings.max_tokens - 2
    features = features or FeatureSpec()
    places = {
        name: {value: i for i, value in enumerate(values, start=1)} for name, values in features.categories.items()
    }
    items = []
    for row, ids in zip(rows, tokenizer.ids([row.text for row in rows]), strict=True):
        targets = {
            spec.name: target_of(spec, row.answers[spec.name], row.place, settings.level_spread)
            for spec in specs
            if spec.name in row.answers
        }
        numbers = tuple(_number(row, name) for name in features.numbers)
        categories = tuple(_category(row, name, known) for name, known in places.items())
        items.append(Item([tokenizer.cls, *ids[:room], tokenizer.sep], targets, numbers, categories))
    return items


def target_of(spec: HeadSpec, answer: Answer, place: str, level_spread: float) -> npt.NDArray[np.float32]:
    """What the head's outputs should be: fp32 ``[outputs]``."""
    if spec.kind == "value":
        return np.array([(float(answer) - spec.centre) / spec.spread], np.float32)  # type: ignore[arg-type]
    if spec.kind == "yesno":
        return np.array([not answer, bool(answer)], np.float32)
    if spec.kind == "score":
        values = np.array([float(label) for label in spec.labels])
        at = int(np.abs(values - float(answer)).argmin())  # type: ignore[arg-type]
        distance = np.arange(len(values)) - at
        bell = np.exp(-0.5 * (distance / level_spread) ** 2) if level_spread else (distance == 0).astype(float)
        level: npt.NDArray[np.float32] = (bell / bell.sum()).astype(np.float32)
        return level
    places = {label: i for i, label in enumerate(spec.labels)}
    soft = isinstance(answer, Mapping)
    shares = dict(answer) if isinstance(answer, Mapping) else dict.fromkeys(labels_of(answer), 1.0)
    target = np.zeros(len(spec.labels), np.float32)
    for label, share in shares.items():
        if label not in places:
            raise InputError(f"{place}: the label {label!r} of {spec.name!r} is not among those that are trained")
        target[places[label]] = share
    if soft and target.sum():
        target /= target.sum()
    return target


def bucketed(items: Sequence[Item], settings: FineTuning, rng: random.Random | None) -> Iterator[list[int]]:
    """Indices in batches of like length; shuffled anew by ``rng``, in order of length without it.

    Rows are shuffled first and sorted within pools of many batches, so that a batch is neither always the same nor
    padded far.
    """
    order = list(range(len(items)))
    if rng is None:
        pools = [sorted(order, key=lambda i: -len(items[i].ids))]
    else:
        rng.shuffle(order)
        size = settings.batch_rows * 50
        pools = [sorted(order[s : s + size], key=lambda i: -len(items[i].ids)) for s in range(0, len(order), size)]
    batches: list[list[int]] = []
    for pool in pools:
        batch: list[int] = []
        for i in pool:
            longest = len(items[batch[0]].ids) if batch else 0
            if batch and (len(batch) >= settings.batch_rows or longest * (len(batch) + 1) > settings.batch_tokens):
                batches.append(batch)
                batch = []
            batch.append(i)
        if batch:
            batches.append(batch)
    if rng is not None:
        rng.shuffle(batches)
    yield from batches


def collate(items: Sequence[Item], pad: int) -> dict[str, Tensor]:
    """A padded batch, as ``FixedModel`` takes it."""
    longest = max(len(item.ids) for item in items)
    ids = torch.full((len(items), longest), pad)
    mask = torch.zeros((len(items), longest), dtype=torch.int64)
    for i, item in enumerate(items):
        ids[i, : len(item.ids)] = torch.tensor(item.ids)
        mask[i, : len(item.ids)] = 1
    batch = {"input_ids": ids, "attention_mask": mask}
    if items[0].numbers or items[0].categories:
        batch["numbers"] = torch.tensor([item.numbers for item in items], dtype=torch.float32)
        batch["categories"] = torch.tensor([item.categories for item in items], dtype=torch.int64)
    return batch


def head_loss(
    spec: HeadSpec, outputs: Tensor, items: Sequence[Item], smoothing: float, weights: Tensor | None = None
) -> tuple[Tensor, int]:
    """Summed loss of a head over the rows that answer it, and how many those are."""
    kept = [i for i, item in enumerate(items) if spec.name in item.targets]
    if not kept:
        return outputs.sum() * 0.0, 0
    found = outputs[kept].float()
    target = torch.from_numpy(np.stack([items[i].targets[spec.name] for i in kept]))
    if spec.kind == "value":
        return (found - target).square().sum(), len(kept)
    if spec.kind == "labels":
        loss = nn.functional.binary_cross_entropy_with_logits(
            found, target * (1 - smoothing) + 0.5 * smoothing, reduction="none", pos_weight=weights
        )
        return loss.mean(1).sum() * min(len(spec.labels), 8), len(kept)
    if spec.kind != "score":
        target = target * (1 - smoothing) + smoothing / target.shape[1]
    each = -(target * found.log_softmax(-1))
    return (each if weights is None else each * weights).sum(), len(kept)


def label_weights(spec: HeadSpec, items: Sequence[Item]) -> Tensor | None:
    """Square roots of how rare each label is, with a mean of one; ``None`` for a value."""
    rows = [item.targets[spec.name] for item in items if spec.name in item.targets]
    if spec.kind == "value" or not rows:
        return None
    counts = np.stack(rows).sum(0).clip(1.0)
    weights = np.sqrt(counts.mean() / counts)
    return torch.from_numpy((weights / weights.mean()).astype(np.float32))


class FineTuner:
    """Trains a ``FixedModel``.

    Args:
        model: to train, in fp32.
        items, validation: rows to train on and to stop by.
        pad: id of the padding piece.
        settings: hyper-parameters.
        folder: where checkpoints and the log go; a run found there is taken up, if it is one of the same rows, heads,
            settings and start.
        metric: the model's worth on the validation rows, larger is better.
    """

    def __init__(
        self,
        model: FixedModel,
        items: Sequence[Item],
        validation: Sequence[Item],
        pad: int,
        settings: FineTuning,
        folder: Path,
        metric: Callable[[FixedModel, Sequence[Item]], dict[str, float]],
    ) -> None:
        self.model, self.items, self.validation, self.pad = model, items, validation, pad
        self.settings, self.folder, self.metric = settings, folder, metric
        torch.set_num_threads(settings.threads)
        encoder: Any = model.encoder
        encoder.get_input_embeddings().weight.requires_grad_(settings.train_embeddings)
        self.optimizer = torch.optim.AdamW(_parameter_groups(model, settings), betas=(0.9, 0.98), eps=1e-6)
        self._rates = [group["lr"] for group in self.optimizer.param_groups]
        self._weights = {
            spec.name: label_weights(spec, items) if settings.class_weights else None for spec in model.specs
        }
        per_epoch = sum(1 for _ in bucketed(items, settings, random.Random(0)))
        self.fingerprint = _fingerprint(model, items, validation, settings)
        self.total = max(1, math.ceil(per_epoch / settings.accumulate)) * settings.epochs
        self.step = self.epoch = self.position = 0
        self.best: dict[str, Any] = {"score": -math.inf, "epoch": -1}

    def run(self, report: Report | None = None) -> dict[str, Any]:
        """Train to the end or to the early stop, load the best weights, and return the best epoch's record."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._resume()
        while self.epoch < self.settings.epochs and self.epoch - self.best["epoch"] <= self.settings.patience:
            began = time.monotonic()
            loss = self._run_epoch()
            self.model.eval()
            figures = self.metric(self.model, self.validation)
            score = float(np.mean(list(figures.values())))
            if score > self.best["score"]:
                self.best = {"score": score, "epoch": self.epoch, "figures": figures}
                self._write(self.model.state_dict(), "best.pt")
            self.epoch, self.position = self.epoch + 1, 0
            self._save()
            record = {
                "epoch": self.epoch,
                "loss": round(loss, 4),
                **figures,
                "best_epoch": self.best["epoch"] + 1,
                "rows_per_second": round(len(self.items) / max(1e-9, time.monotonic() - began), 1),
            }
            self._log(record)
            if report:
                report(record)
        self.model.load_state_dict(torch.load(self.folder / "best.pt", weights_only=True))
        self.model.eval()
        return self.best

    def _run_epoch(self) -> float:
        """The rest of the current epoch; returns the mean loss of a row."""
        rng = random.Random(f"{self.settings.seed}/{self.epoch}")
        batches = list(bucketed(self.items, self.settings, rng))
        total, rows = 0.0, 0
        self.model.train()
        for number in range(self.position, len(batches), self.settings.accumulate):
            # what is drawn at random depends on the step alone, so a run that was killed goes on as if it had not been
            torch.manual_seed(self.settings.seed * 1_000_003 + self.step)
            factor = _schedule(self.step, self.total, self.settings.warmup)
            for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate * factor
            chosen = batches[number : number + self.settings.accumulate]
            size = sum(map(len, chosen))
            for batch in chosen:
                items = [self.items[i] for i in batch]
                feeds = _with_gaps(collate(items, self.pad), self.settings.feature_dropout)
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.settings.bf16):
                    outputs = self.model(**feeds)
                loss = sum(
                    (
                        head_loss(
                            spec, outputs[spec.name], items, self.settings.label_smoothing, self._weights[spec.name]
                        )[0]
                        for spec in self.model.specs
                    ),
                    torch.zeros(()),
                )
                (loss / size).backward()  # type: ignore[no-untyped-call]
                total += loss.item()
            nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if not math.isfinite(total):
                raise TrainingError(f"the loss is {total} at step {self.step}: lower the learning rate")
            rows += size
            self.step += 1
            self.position = number + self.settings.accumulate
            if self.step % 200 == 0:
                self._save()
        return total / max(1, rows)

    def _save(self) -> None:
        self._write(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "step": self.step,
                "epoch": self.epoch,
                "position": self.position,
                "best": self.best,
                "fingerprint": self.fingerprint,
            },
            "training.pt",
        )

    def _write(self, data: Mapping[str, Any], name: str) -> None:
        temporary = self.folder / f"{name}.tmp"
        try:
            torch.save(dict(data), temporary)
            temporary.replace(self.folder / name)
        except (OSError, RuntimeError) as error:  # PyTorch reports a full disk as a RuntimeError
            raise TrainingError(f"cannot write {self.folder / name}: {error}") from None
        finally:
            temporary.unlink(missing_ok=True)

    def _resume(self) -> None:
        path = self.folder / "training.pt"
        if path.is_file():
            saved = torch.load(path, weights_only=True)
            if saved.get("fingerprint") != self.fingerprint:
                raise InputError(
                    f"{self.folder} holds a run with other rows, heads, settings or another start: name another "
                    "folder, or remove it"
                )
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.step, self.epoch, self.position = saved["step"], saved["epoch"], saved["position"]
            self.best = saved["best"]

    def _log(self, record: Mapping[str, Any]) -> None:
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(record, ensure_ascii=False) + "\n")


@torch.inference_mode()
def outputs_of(
    model: FixedModel, items: Sequence[Item], pad: int, settings: FineTuning
) -> dict[str, npt.NDArray[np.float32]]:
    """The model's outputs for every item, fp32 ``[items, outputs]`` by head."""
    model.eval()
    found = {spec.name: np.zeros((len(items), spec.outputs), np.float32) for spec in model.specs}
    for batch in bucketed(items, settings, None):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=settings.bf16):
            outputs = model(**collate([items[i] for i in batch], pad))
        for name, values in outputs.items():
            found[name][batch] = values.float().numpy()
    return found


def _with_gaps(batch: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    """The batch with a share of its features missing, so that a model learns to do without each."""
    if "numbers" in batch and share:
        batch["numbers"] = batch["numbers"].masked_fill(torch.rand(batch["numbers"].shape) < share, math.nan)
        batch["categories"] = batch["categories"].masked_fill(torch.rand(batch["categories"].shape) < share, 0)
    return batch


def _parameter_groups(model: FixedModel, settings: FineTuning) -> list[dict[str, Any]]:
    """Layer-wise rates: full at the top layer, times ``layer_decay`` for each one below; heads have their own."""
    encoder: Any = model.encoder
    layers = list(encoder.encoder.layer)
    rates = {id(p): settings.learning_rate * settings.layer_decay ** len(layers) for p in encoder.parameters()}
    for depth, layer in enumerate(layers):
        rate = settings.learning_rate * settings.layer_decay ** (len(layers) - 1 - depth)
        rates.update((id(p), rate) for p in layer.parameters())
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        if parameter.requires_grad:
            decay = settings.weight_decay if parameter.ndim > 1 else 0.0
            groups.setdefault((rates.get(id(parameter), settings.head_learning_rate), decay), []).append(parameter)
    return [{"params": found, "lr": rate, "weight_decay": decay} for (rate, decay), found in groups.items()]


def _fingerprint(model: FixedModel, items: Sequence[Item], validation: Sequence[Item], settings: FineTuning) -> str:
    """The same for runs that would go alike."""
    digest = hashlib.sha256(repr((asdict(settings), model.specs, model.feature_spec, model.pooling)).encode())
    for item in (*items, *validation):
        digest.update(repr((item.ids, item.numbers, item.categories)).encode())
        for name, target in item.targets.items():
            digest.update(name.encode() + target.tobytes())
    for parameter in model.encoder.parameters():
        digest.update(parameter.detach().numpy().tobytes()[:4096])
    return digest.hexdigest()


def _schedule(step: int, total: int, warmup: float) -> float:
    """Linear warm-up, then linear decay to zero, as a factor."""
    warm = max(1, round(warmup * total))
    return (step + 1) / warm if step < warm else max(0.0, (total - step) / max(1, total - warm))


def _number(row: DataRow, name: str) -> float:
    value = row.features.get(name)
    if isinstance(value, str):
        raise InputError(f"{row.place}: the feature {name!r} is {value!r}: in training it is a number")
    return math.nan if value is None else value


def _category(row: DataRow, name: str, known: Mapping[str, int]) -> int:
    value = row.features.get(name)
    if isinstance(value, float):
        raise InputError(f"{row.place}: the feature {name!r} is {value:g}: in training it is a text")
    return known.get(value, 0) if value is not None else 0
