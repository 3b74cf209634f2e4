"""Fine-tune fixed heads on items: losses, layer-wise rates, early stop, exact resume."""

from __future__ import annotations

import hashlib
import json
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from julia1.errors import InputError, TrainingError
from julia1.model.fixed_model import TEXT_VECTOR, WINDOW_WEIGHT, FixedModel
from julia1.text.windows import best_places
from julia1.train.items import Item, Outputs, bucketed, by_item, collate, window_rows
from julia1.train.losses import head_loss, label_weights, relation_loss, teacher_loss
from julia1.train.optimisation import linear_schedule, parameter_groups
from julia1.train.recipe import FineTuning

Report = Callable[[dict[str, Any]], None]
"""Called with a record of kind ``step`` after every step and of kind ``epoch`` after every epoch; before the first with
one of kind ``cut``, if rows are longer than what is read, and at the end with one of kind ``package``."""
LOGGED_STEPS = 500
"""About so many steps of a run stand in its log."""
STEPS, LEAST_EPOCHS, MOST_EPOCHS = 1500, 5, 12
LOG = "log.jsonl"


class DivergedError(TrainingError):
    """The loss is no number any more: other hyper-parameters may do."""


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
    found = {TEXT_VECTOR: outputs[TEXT_VECTOR]} if TEXT_VECTOR in outputs else {}
    for spec in model.specs:
        values = outputs[spec.name].float()
        if spec.kind != "tags":
            mean = torch.zeros(size, values.shape[1]).index_add(0, owner, values[:windows] * weights[:, None])
            mean = nn.functional.normalize(mean, dim=-1) if spec.size else mean
            values = torch.cat([mean, values[windows:]])
        found[spec.name] = values
    return found


def default_epochs(steps: int) -> int:
    """Epochs of ``steps`` steps that train for about ``STEPS`` of them, within bounds."""
    return min(MOST_EPOCHS, max(LEAST_EPOCHS, round(STEPS / steps)))


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
        mask: id of the piece that tokens are hidden behind; none are without it.
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
        mask: int | None = None,
    ) -> None:
        self.model, self.items, self.validation, self.pad = model, items, validation, pad
        self.settings, self.folder, self.metric, self.mask = settings, folder, metric, mask
        torch.set_num_threads(settings.threads)
        encoder: Any = model.encoder
        encoder.get_input_embeddings().weight.requires_grad_(settings.train_embeddings)
        self.optimizer = torch.optim.AdamW(parameter_groups(model, settings), betas=(0.9, 0.98), eps=1e-6, fused=True)
        self._rates = [group["lr"] for group in self.optimizer.param_groups]
        self._weights = {
            spec.name: label_weights(spec, items) if settings.class_weights else None for spec in model.specs
        }
        self._taught = {name for item in items for name in item.teacher}
        self._related = settings.teacher_hidden > 0 and any(item.teacher_vector is not None for item in items)
        model.gives_vectors = self._related
        per_epoch = sum(1 for _ in bucketed(items, settings, random.Random(0)))
        self.fingerprint = _fingerprint(model, items, validation, settings)
        steps = max(1, math.ceil(per_epoch / settings.accumulate))
        self.epochs = settings.epochs or default_epochs(steps)
        self.total = steps * self.epochs
        # with few rows an epoch is a few steps: figures after each would be noise, and cost more than the training
        self._every = max(1, math.ceil(settings.evaluate_every / steps))
        self.step = self.epoch = self.position = 0
        self.seconds, self._began = 0.0, time.monotonic()
        self.best: dict[str, Any] = {"score": -math.inf, "epoch": -1}
        self._report: Report | None = None
        self._unlogged: list[tuple[float, int]] = []
        self._sum = (0.0, 0)

    def run(self, report: Report | None = None) -> dict[str, Any]:
        """Train to the end or to the early stop, load the best weights, and return the best epoch's record."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TrainingError(f"cannot write in {self.folder}: {error.strerror}") from None
        self._report = report
        self._resume()
        while self.epoch < self.epochs and self.epoch - self.best["epoch"] <= self.settings.patience * self._every:
            began = time.monotonic()
            rows = self._run_epoch()
            loss = self._sum[0] / max(1, self._sum[1])
            self.model.eval()
            figures, score = dict[str, float](), -math.inf
            if (self.epoch + 1) % self._every == 0 or self.epoch + 1 == self.epochs:
                figures = self.metric(self.model, self.validation)
                score = float(np.mean(list(figures.values())))
                if score > self.best["score"]:
                    self.best = {"score": score, "epoch": self.epoch, "figures": figures}
                    self._write(self.model.state_dict(), "best.pt")
            self.epoch, self.position, self._sum = self.epoch + 1, 0, (0.0, 0)
            record = {
                "kind": "epoch",
                "step": self.step,
                "epoch": self.epoch,
                "epochs": self.epochs,
                "loss": round(loss, 4),
                "figures": figures,
                **({"validation": score} if figures else {}),
                "best_epoch": self.best["epoch"] + 1,
                "rows_per_second": round(rows / max(1e-9, time.monotonic() - began), 1),
            }
            # before the checkpoint: an epoch that is told twice counts once, one that is not told is lost
            self._log(record)
            self._save()
            if report:
                report(record)
        self.model.load_state_dict(torch.load(self.folder / "best.pt", weights_only=True))
        self.model.eval()
        return self.best

    def _run_epoch(self) -> int:
        """The rest of the current epoch; returns how many rows that were."""
        rng = random.Random(f"{self.settings.seed}/{self.epoch}")
        batches = list(bucketed(self.items, self.settings, rng))
        rows = 0
        self.model.train()
        for number in range(self.position, len(batches), self.settings.accumulate):
            # what is drawn at random depends on the step alone, so a run that was killed goes on as if it had not been
            torch.manual_seed(self.settings.seed * 1_000_003 + self.step)
            factor = linear_schedule(self.step, self.total, self.settings.warmup)
            for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate * factor
            chosen = batches[number : number + self.settings.accumulate]
            size, total = sum(map(len, chosen)), 0.0
            for batch in chosen:
                items = [self.items[i] for i in batch]
                feeds = _with_gaps(collate(items, self.pad), self.settings.feature_dropout)
                if self.mask is not None and self.settings.token_dropout:
                    kept = (items[0].ids[0], items[0].ids[-1], self.pad)
                    feeds["input_ids"] = hidden_tokens(feeds["input_ids"], kept, self.mask, self.settings.token_dropout)
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.settings.bf16):
                    outputs = of_items(self.model, self.model(**feeds), items)
                loss = self._loss(outputs, items)
                (loss / size).backward()  # type: ignore[no-untyped-call]
                total += loss.item()
            nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if not math.isfinite(total):
                raise DivergedError(f"the loss is {total} at step {self.step}: lower the learning rate")
            rows += size
            self._sum = (self._sum[0] + total, self._sum[1] + size)
            self.step += 1
            self.position = number + self.settings.accumulate
            self._tell_step(total, size)
            if self.step % 200 == 0:
                self._save()
        return rows

    def _tell_step(self, loss: float, rows: int) -> None:
        """Report a step with its summed loss, and log the mean of a few."""
        self._unlogged.append((loss, rows))
        record = {
            "kind": "step",
            "step": self.step,
            "steps": self.total,
            "epoch": self.epoch + 1,
            "epochs": self.epochs,
            "loss": round(loss / max(1, rows), 4),
            "learning_rate": max(group["lr"] for group in self.optimizer.param_groups),
            "rows": rows,
        }
        if self.step % max(1, self.total // LOGGED_STEPS) == 0:
            losses, numbers = zip(*self._unlogged, strict=True)
            self._unlogged = []
            kept = {key: record[key] for key in ("kind", "step", "epoch", "learning_rate")}
            self._log({**kept, "loss": round(sum(losses) / max(1, sum(numbers)), 4)})
        if self._report:
            self._report(record)

    def _loss(self, outputs: Mapping[str, Tensor], items: Sequence[Item]) -> Tensor:
        """Summed over heads and items."""
        settings, total = self.settings, torch.zeros(())
        share = settings.teacher_share if self._taught else 0.0
        for spec, head in zip(self.model.specs, self.model.heads, strict=True):
            of_head, weights = outputs[spec.name], self._weights[spec.name]
            if spec.name not in self._taught:
                total = total + head_loss(spec, head, of_head, items, settings.label_smoothing, weights)
                continue
            for taught, own in ((False, 1.0), (True, 1 - share)):
                some = [item if (spec.name in item.teacher) is taught else replace(item, targets={}) for item in items]
                total = total + own * head_loss(spec, head, of_head, some, settings.label_smoothing, weights)
            total = total + share * teacher_loss(spec, of_head, items, settings.teacher_temperature)
        if self._related:
            total = total + settings.teacher_hidden * relation_loss(outputs[TEXT_VECTOR], items)
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
                "sum": self._sum,
                "unlogged": self._unlogged,
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
            self.best, self.seconds = saved["best"], saved["seconds"]
            self._sum, self._unlogged = tuple(saved["sum"]), [tuple(one) for one in saved["unlogged"]]

    def _log(self, record: Mapping[str, Any]) -> None:
        try:
            with (self.folder / LOG).open("ab+") as log:
                # a line that was torn by a kill must not swallow this one
                torn = log.tell() > 0 and (log.seek(-1, 2), log.read(1))[1] != b"\n"
                log.write(("\n" * torn + json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8"))
        except OSError as error:
            raise TrainingError(f"cannot write {self.folder / LOG}: {error.strerror}") from None


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


def hidden_tokens(ids: Tensor, kept: Sequence[int], mask: int, share: float) -> Tensor:
    """Piece ids with a share of them hidden behind ``mask``, but those in ``kept``.

    A model that cannot lean on single words learns them by heart less: with 10 rows a class of banking77 that was
    worth 3 points.
    """
    special = torch.isin(ids, torch.tensor(kept))
    return ids.masked_fill((torch.rand(ids.shape) < share) & ~special, mask)


def _with_gaps(batch: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    """The batch with a share of its features missing, so that a model learns to do without each."""
    if "numbers" in batch and share:
        batch["numbers"] = batch["numbers"].masked_fill(torch.rand(batch["numbers"].shape) < share, math.nan)
        batch["categories"] = batch["categories"].masked_fill(torch.rand(batch["categories"].shape) < share, 0)
    return batch


def _fingerprint(model: FixedModel, items: Sequence[Item], validation: Sequence[Item], settings: FineTuning) -> str:
    """The same for runs that would go alike."""
    digest = hashlib.sha256(
        repr((asdict(settings), model.specs, model.feature_spec, model.pooling, model.languages)).encode()
    )
    for item in (*items, *validation):
        digest.update(repr((item.ids, item.more, item.others, item.numbers, item.categories)).encode())
        if item.teacher_vector is not None:
            digest.update(item.teacher_vector.round(3).tobytes())
        for name, logits in item.teacher.items():
            digest.update(name.encode() + logits.round(3).tobytes())
        for name, target in item.targets.items():
            digest.update(name.encode() + target.tobytes())
    if model.gate is not None:
        digest.update(model.gate.table.numpy().tobytes())
    for parameter in model.encoder.parameters():
        digest.update(parameter.detach().numpy().tobytes()[:4096])
    return digest.hexdigest()
