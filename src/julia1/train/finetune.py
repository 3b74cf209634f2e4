"""Fine-tune fixed heads on items: losses, layer-wise rates, early stop, exact resume."""

from __future__ import annotations

import hashlib
import json
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from julia1.bundle.heads import PAIR_KINDS, HeadSpec
from julia1.errors import InputError, TrainingError
from julia1.model.fixed_model import WINDOW_WEIGHT, FixedModel, VectorHead
from julia1.text.windows import best_places
from julia1.train.items import Item, Outputs, bucketed, by_item, collate, window_rows
from julia1.train.optimisation import linear_schedule, parameter_groups
from julia1.train.recipe import FineTuning

Report = Callable[[dict[str, Any]], None]
UNREAD = -100
"""Target of tokens that carry no tag: [CLS], [SEP] and padding."""
MARGIN = 2.0
"""By how much the logit of the best candidate should lead."""
TAG_SHARE = 8.0
"""What the tags of a text weigh beside one answer about it: most tokens are outside of all spans, and easy."""


def head_loss(
    spec: HeadSpec,
    head: nn.Module,
    outputs: Tensor,
    items: Sequence[Item],
    smoothing: float,
    weights: Tensor | None = None,
) -> Tensor:
    """Summed loss of a head over the items that answer it; outputs as ``of_items`` gives them."""
    kept = [i for i, item in enumerate(items) if spec.name in item.targets]
    if not kept:
        return outputs.sum() * 0.0
    if isinstance(head, VectorHead):
        return _vector_loss(spec, head, outputs.float(), items, smoothing)
    found = outputs[kept].float()
    if spec.kind == "tags":
        return _tag_loss(outputs.float(), spec.name, items, smoothing)
    target = torch.from_numpy(np.stack([items[i].targets[spec.name] for i in kept]))
    if spec.kind == "value":
        return (found - target).square().sum()
    if spec.kind == "match":
        return nn.functional.binary_cross_entropy_with_logits(
            found, target * (1 - smoothing) + 0.5 * smoothing, reduction="sum"
        )
    if spec.kind == "labels":
        loss = nn.functional.binary_cross_entropy_with_logits(
            found, target * (1 - smoothing) + 0.5 * smoothing, reduction="none", pos_weight=weights
        )
        return loss.mean(1).sum() * min(len(spec.labels), 8)
    if spec.kind != "score":
        target = target * (1 - smoothing) + smoothing / target.shape[1]
    each = -(target * found.log_softmax(-1))
    return (each if weights is None else each * weights).sum()


def teacher_loss(spec: HeadSpec, outputs: Tensor, items: Sequence[Item], temperature: float) -> Tensor:
    """Summed divergence from a teacher's soft labels over the items that have them, times the temperature squared.

    The square keeps gradients as large as at a temperature of 1 (Hinton et al. 2015).
    """
    kept = [i for i, item in enumerate(items) if spec.name in item.teacher]
    if not kept:
        return outputs.sum() * 0.0
    found = outputs[kept].float() / temperature
    wanted = torch.from_numpy(np.stack([items[i].teacher[spec.name] for i in kept])) / temperature
    if spec.kind == "labels":
        each = nn.functional.binary_cross_entropy_with_logits(found, wanted.sigmoid(), reduction="none")
        return temperature**2 * each.mean(1).sum() * min(len(spec.labels), 8)
    target, logs = wanted.softmax(-1), found.log_softmax(-1)
    return temperature**2 * nn.functional.kl_div(logs, target, reduction="sum")


def _vector_loss(spec: HeadSpec, head: VectorHead, vectors: Tensor, items: Sequence[Item], smoothing: float) -> Tensor:
    """Of texts read apart. A pair: cross-entropy. Candidates: each wrong one should stay ``MARGIN`` under the best."""
    total, start = vectors.sum() * 0.0, len(items)
    for number, item in enumerate(items):
        end = start + len(item.others)
        if spec.name in item.targets:
            scores = head.scores(vectors[number], vectors[start:end])
            target = torch.from_numpy(item.targets[spec.name])
            if spec.kind == "match":
                total = total + nn.functional.binary_cross_entropy_with_logits(
                    scores, target * (1 - smoothing) + 0.5 * smoothing, reduction="sum"
                )
            else:
                best = int(target)
                short = nn.functional.relu(MARGIN - scores[best] + scores)
                total = total + (short.sum() - short[best]) / (len(scores) - 1)
        start = end
    return total


def _tag_loss(outputs: Tensor, name: str, items: Sequence[Item], smoothing: float) -> Tensor:
    """Summed over the items: what a token costs in the mean, times ``TAG_SHARE``; outputs ``[rows, tokens, tags]``."""
    target = torch.full(outputs.shape[:2], UNREAD, dtype=torch.int64)
    share = torch.zeros(outputs.shape[0])
    for item, rows in zip(items, window_rows(items), strict=True):
        if name in item.targets:
            for row, (start, end) in zip(rows, item.windows, strict=True):
                target[row, 1 : 1 + end - start] = torch.from_numpy(item.targets[name][start:end])
                share[row] = TAG_SHARE / max(1, sum(end - start for start, end in item.windows))
    each = nn.functional.cross_entropy(
        outputs.flatten(0, 1), target.flatten(), ignore_index=UNREAD, reduction="none", label_smoothing=smoothing
    )
    return (each.view(target.shape).sum(1) * share).sum()


def of_items(model: FixedModel, outputs: Mapping[str, Tensor], items: Sequence[Item]) -> dict[str, Tensor]:
    """Outputs of the windows of each item as one, then those of what items are compared with; of tags, as they are."""
    if not any(item.more for item in items):
        return dict(outputs)
    rows = window_rows(items)
    owner = torch.empty(sum(map(len, rows)), dtype=torch.int64)
    for number, own in enumerate(rows):
        owner[own] = number
    windows, size = len(owner), len(items)
    logits = outputs[WINDOW_WEIGHT][:windows, 0].float() if WINDOW_WEIGHT in outputs else torch.zeros(windows)
    top = torch.full((size,), -torch.inf).scatter_reduce(0, owner, logits.detach(), "amax")
    weights = (logits - top[owner]).exp()
    weights = weights / torch.zeros(size).index_add(0, owner, weights)[owner]
    found = {}
    for spec in model.specs:
        values = outputs[spec.name].float()
        if spec.kind != "tags":
            mean = torch.zeros(size, values.shape[1]).index_add(0, owner, values[:windows] * weights[:, None])
            mean = nn.functional.normalize(mean, dim=-1) if spec.size else mean
            values = torch.cat([mean, values[windows:]])
        found[spec.name] = values
    return found


def label_weights(spec: HeadSpec, items: Sequence[Item]) -> Tensor | None:
    """Square roots of how rare each label is, with a mean of one; ``None`` for heads without labels of a text."""
    rows = [item.targets[spec.name] for item in items if spec.name in item.targets]
    if spec.kind in ("value", "tags", *PAIR_KINDS) or not rows:
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
        self.optimizer = torch.optim.AdamW(parameter_groups(model, settings), betas=(0.9, 0.98), eps=1e-6)
        self._rates = [group["lr"] for group in self.optimizer.param_groups]
        self._weights = {
            spec.name: label_weights(spec, items) if settings.class_weights else None for spec in model.specs
        }
        self._taught = {name for item in items for name in item.teacher}
        per_epoch = sum(1 for _ in bucketed(items, settings, random.Random(0)))
        self.fingerprint = _fingerprint(model, items, validation, settings)
        self.total = max(1, math.ceil(per_epoch / settings.accumulate)) * settings.epochs
        self.step = self.epoch = self.position = 0
        self.seconds, self._began = 0.0, time.monotonic()
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
            factor = linear_schedule(self.step, self.total, self.settings.warmup)
            for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate * factor
            chosen = batches[number : number + self.settings.accumulate]
            size = sum(map(len, chosen))
            for batch in chosen:
                items = [self.items[i] for i in batch]
                feeds = _with_gaps(collate(items, self.pad), self.settings.feature_dropout)
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.settings.bf16):
                    outputs = of_items(self.model, self.model(**feeds), items)
                loss = self._loss(outputs, items)
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

    def _loss(self, outputs: Mapping[str, Tensor], items: Sequence[Item]) -> Tensor:
        """Summed over heads and items."""
        settings, total = self.settings, torch.zeros(())
        share = settings.teacher_share if self._taught else 0.0
        for spec, head in zip(self.model.specs, self.model.heads, strict=True):
            of_head, weights = outputs[spec.name], self._weights[spec.name]
            own = 1 - share if spec.name in self._taught else 1.0
            total = total + own * head_loss(spec, head, of_head, items, settings.label_smoothing, weights)
            if spec.name in self._taught:
                total = total + share * teacher_loss(spec, of_head, items, settings.teacher_temperature)
        return total

    def _save(self) -> None:
        now = time.monotonic()
        self.seconds, self._began = self.seconds + now - self._began, now
        self._write(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "step": self.step,
                "epoch": self.epoch,
                "position": self.position,
                "best": self.best,
                "seconds": self.seconds,
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
            self.best, self.seconds = saved["best"], saved.get("seconds", 0.0)

    def _log(self, record: Mapping[str, Any]) -> None:
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(record, ensure_ascii=False) + "\n")


@torch.inference_mode()
def outputs_of(model: FixedModel, items: Sequence[Item], pad: int, settings: FineTuning) -> Outputs:
    """The model's outputs by head for every item: see ``Outputs``."""
    model.eval()
    found: Outputs = {spec.name: [np.zeros(0, np.float32)] * len(items) for spec in model.specs}
    for batch in bucketed(items, settings, None):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=settings.bf16):
            own = [items[i] for i in batch]
            outputs = of_items(model, model(**collate(own, pad)), own)
        for spec in model.specs:
            of_batch = outputs[spec.name].float().numpy()
            if spec.kind == "tags":
                rows = [
                    _joined_tags(of_batch[own_rows], item) for own_rows, item in zip(window_rows(own), own, strict=True)
                ]
            else:
                rows = by_item(of_batch, own) if spec.size else list(of_batch[: len(own)])
            for index, values in zip(batch, rows, strict=True):
                found[spec.name][index] = values
    return found


def _joined_tags(outputs: npt.NDArray[np.float32], item: Item) -> npt.NDArray[np.float32]:
    """Outputs of an item's tokens, ``[tokens, tags]``, from those of its windows with [CLS] and [SEP]."""
    if len(item.windows) == 1:
        return outputs[0, 1 : len(item.ids) - 1]
    windows, places = zip(*best_places(item.windows), strict=True)
    return outputs[list(windows), np.array(places) + 1]


def _with_gaps(batch: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    """The batch with a share of its features missing, so that a model learns to do without each."""
    if "numbers" in batch and share:
        batch["numbers"] = batch["numbers"].masked_fill(torch.rand(batch["numbers"].shape) < share, math.nan)
        batch["categories"] = batch["categories"].masked_fill(torch.rand(batch["categories"].shape) < share, 0)
    return batch


def _fingerprint(model: FixedModel, items: Sequence[Item], validation: Sequence[Item], settings: FineTuning) -> str:
    """The same for runs that would go alike."""
    digest = hashlib.sha256(repr((asdict(settings), model.specs, model.feature_spec, model.pooling)).encode())
    for item in (*items, *validation):
        digest.update(repr((item.ids, item.more, item.others, item.numbers, item.categories)).encode())
        for name, logits in item.teacher.items():
            digest.update(name.encode() + logits.round(3).tobytes())
        for name, target in item.targets.items():
            digest.update(name.encode() + target.tobytes())
    for parameter in model.encoder.parameters():
        digest.update(parameter.detach().numpy().tobytes()[:4096])
    return digest.hexdigest()
