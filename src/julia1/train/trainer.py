"""Train an open-decision model: seeded draws, length-sorted micro-batches, checkpoints that resume exactly."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from julia1.errors import TooLongError, TrainingError
from julia1.model.option_model import OptionModel
from julia1.text.options import Encoded, OptionsEncoding, Row
from julia1.train.mix import Mix
from julia1.train.optimisation import linear_schedule, parameter_groups
from julia1.train.recipe import Recipe
from julia1.train.views import Example

Evaluate = Callable[[OptionModel], dict[str, float]]
Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class TrainingRow:
    """A row with the wanted probability of each of its markers, in the order of ``row.slots``."""

    row: Row
    targets: list[float]

    @property
    def questions(self) -> int:
        """How many questions the row holds."""
        return 1 + max(question for question, _ in self.row.slots)


def to_tensors(encoded: Encoded) -> dict[str, Tensor]:
    """The batch as int64 tensors by input name."""
    return {name: torch.from_numpy(array) for name, array in encoded.feeds().items()}


def encode_examples(encoding: OptionsEncoding, examples: Sequence[Example]) -> list[TrainingRow]:
    """One row an example; one that needs more than one pass, or holds a text over its budget, is left out."""
    rows = []
    for example in examples:
        questions = {str(i): question for i, (question, _) in enumerate(example.questions)}
        try:
            built, _ = encoding.encode(example.state, questions)
        except TooLongError:
            continue
        if len(built) == 1:
            targets = [example.questions[question][1][option] for question, option in built[0].slots]
            rows.append(TrainingRow(built[0], targets))
    return rows


def micro_batches(rows: Sequence[TrainingRow], batch_tokens: int) -> Iterator[list[TrainingRow]]:
    """Rows sorted by length, cut where the padded batch would pass the token budget or waste a third of itself."""
    batch: list[TrainingRow] = []
    for item in sorted(rows, key=lambda r: len(r.row), reverse=True):
        longest = len(batch[0].row) if batch else 0
        if batch and (longest * (len(batch) + 1) > batch_tokens or longest > 1.5 * len(item.row) + 16):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


def option_loss(logits: Tensor, batch: Sequence[TrainingRow], smoothing: float) -> tuple[Tensor, int]:
    """Summed cross-entropy over the questions of a batch, and how many questions there are.

    Softmax runs over the options of one question; ``smoothing`` mixes its targets with the uniform distribution.
    """
    group = torch.full(logits.shape, -1, dtype=torch.int64)
    target = torch.zeros(logits.shape)
    number = 0
    for i, item in enumerate(batch):
        for j, (question, _) in enumerate(item.row.slots):
            group[i, j] = number + question
        target[i, : len(item.targets)] = torch.tensor(item.targets)
        number += item.questions
    kept = group >= 0
    index, scores, wanted = group[kept], logits.float()[kept], target[kept]
    top = torch.full((number,), -torch.inf).scatter_reduce(0, index, scores.detach(), "amax")
    shifted = scores - top[index]
    log_sum = torch.zeros(number).index_add(0, index, shifted.exp()).log()
    size = torch.zeros(number).index_add(0, index, torch.ones_like(scores))
    wanted = wanted * (1 - smoothing) + smoothing / size[index]
    return -(wanted * (shifted - log_sum[index])).sum(), number


class Trainer:
    """Runs a recipe.

    Args:
        model: the model to train, in fp32.
        encoding: the encoding that inference will use; its state budget is cut to the recipe's ``state_tokens``.
        mix: where examples come from.
        recipe: hyper-parameters and seed.
        folder: where checkpoints and the log go. A checkpoint found there is taken up.
    """

    def __init__(self, model: OptionModel, encoding: OptionsEncoding, mix: Mix, recipe: Recipe, folder: Path) -> None:
        self.model, self.encoding, self.mix, self.recipe, self.folder = model, encoding, mix, recipe, folder
        training = recipe.training
        torch.set_num_threads(training.threads)
        torch.manual_seed(recipe.seed)
        encoder: Any = model.encoder
        encoder.get_input_embeddings().weight.requires_grad_(training.train_embeddings)
        self.optimizer = torch.optim.AdamW(parameter_groups(model, training), betas=(0.9, 0.98), eps=1e-6)
        self._base_rates = [group["lr"] for group in self.optimizer.param_groups]
        self.step = 0

    def run(self, evaluate: Evaluate | None = None, report: Report | None = None) -> None:
        """Train to the last step.

        Args:
            evaluate: called with the model every ``evaluate_every`` steps; its figures are logged.
            report: called with every record that goes to the log.

        Raises:
            TrainingError: the loss is no longer a number.
        """
        training = self.recipe.training
        self._resume()
        self.folder.mkdir(parents=True, exist_ok=True)
        started, first = time.monotonic(), self.step
        while self.step < training.steps:
            loss, tokens, seconds = self.train_step()
            self.step += 1
            pace = (time.monotonic() - started) / (self.step - first)
            record: dict[str, Any] = {
                "step": self.step, "loss": round(loss, 4), "tokens_per_second": round(tokens / seconds),
                "minutes_left": round(pace * (training.steps - self.step) / 60, 1),
            }  # fmt: skip
            if self.step % training.checkpoint_every == 0 or self.step == training.steps:
                self._save()
            if evaluate and (self.step % training.evaluate_every == 0 or self.step == training.steps):
                self.model.eval()
                record["development"] = evaluate(self.model)
                self.model.train()
            self._log(record)
            if report:
                report(record)

    def train_step(self) -> tuple[float, int, float]:
        """One optimizer step; returns mean loss a question, tokens read and seconds."""
        training = self.recipe.training
        began = time.monotonic()
        for group, rate in zip(self.optimizer.param_groups, self._base_rates, strict=True):
            group["lr"] = rate * linear_schedule(self.step, training.steps, training.warmup)
        rows = encode_examples(self.encoding, self.mix.draw(self.step, training.states_per_step))
        questions = sum(row.questions for row in rows)
        total, tokens = 0.0, 0
        self.model.train()
        for batch in micro_batches(rows, training.batch_tokens):
            encoded = self.encoding.collate([item.row for item in batch])
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=training.bf16):
                logits = self.model(**to_tensors(encoded))
            loss, _ = option_loss(logits, batch, training.label_smoothing)
            (loss / questions).backward()  # type: ignore[no-untyped-call]
            total += loss.item()
            tokens += sum(len(item.row) for item in batch)
        nn.utils.clip_grad_norm_(self.model.parameters(), training.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if not math.isfinite(total):
            raise TrainingError(f"the loss is {total} at step {self.step}: lower the learning rate")
        return total / questions, tokens, time.monotonic() - began

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "training.pt"

    def _save(self) -> None:
        temporary = self._checkpoint.with_suffix(".tmp")
        torch.save(
            {"step": self.step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, temporary
        )
        temporary.replace(self._checkpoint)

    def _resume(self) -> None:
        if self._checkpoint.is_file():
            saved = torch.load(self._checkpoint, weights_only=True)
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.step = int(saved["step"])

    def _log(self, record: dict[str, Any]) -> None:
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(record, ensure_ascii=False) + "\n")
