"""How many rows a second training reads, beside transformers' Trainer, on the same encoder and the same rows.

  julia1                  as ``julia1 train`` does by default, with its checkpoints
  Trainer                 transformers' Trainer with its default settings: batches of 8, padded to their longest row
  Trainer, batch 32       the same with julia1's batch
  julia1, all trained     julia1 without what makes it cheaper: fp32, and word embeddings trained

One epoch each, in interleaved rounds. Needs transformers' accelerate beside the extra ``train``.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _common import bundle_path, parser, print_table, run, write_json
from _contenders import new_model
from _problems import Problem, Task, load_problem
from julia1.bundle import Bundle
from julia1.text.states import pad_rows
from julia1.train.finetune import FineTuner
from julia1.train.recipe import FineTuning
from julia1.train.start import start_from_bundle


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--set", default="banking77", help="data set to train on (default: %(default)s)")
    made.add_argument("--rows", type=int, default=1536, help="rows of an epoch (default: %(default)s)")
    made.add_argument("--rounds", type=int, default=3, help="epochs of each (default: %(default)s)")
    made.add_argument("--max-tokens", type=int, default=64, help="tokens read of a text (default: %(default)s)")
    made.add_argument("--threads", type=int, default=2, help="of PyTorch (default: %(default)s)")
    args = made.parse_args()
    task = Task(args.set, settings={"max_tokens": args.max_tokens, "threads": args.threads})
    problem = load_problem(task, args.data, start_from_bundle(Bundle.open(bundle_path(args))), args.rows)
    torch.set_num_threads(args.threads)
    plain = replace(problem.settings, bf16=False, train_embeddings=True)
    with tempfile.TemporaryDirectory() as folder:
        encoder: Any = problem.start.load()
        encoder.save_pretrained(folder)
        contenders: dict[str, Callable[[], float]] = {
            "julia1": partial(of_julia1, problem, problem.settings),
            "Trainer": partial(of_trainer, problem, Path(folder), {}),
            "Trainer, batch 32": partial(of_trainer, problem, Path(folder), {"per_device_train_batch_size": 32}),
            "julia1, all trained": partial(of_julia1, problem, plain),
        }
        found: dict[str, list[float]] = {name: [] for name in contenders}
        for number in range(args.rounds):
            for name, measure in contenders.items():
                found[name].append(measure())
                print(f"round {number + 1}  {name}: {found[name][-1]:.1f} rows/s", flush=True)
    base = float(np.median(found["Trainer"]))
    table = []
    for name, values in found.items():
        ratios = np.array(values) / np.array(found["Trainer"])
        table.append(
            [
                name,
                f"{np.median(values):.1f}",
                f"{np.median(values) / base:.2f}",
                f"{ratios.min():.2f} to {ratios.max():.2f}",
            ]
        )
    print()
    print_table(["", "rows/s", "times the Trainer", "in single rounds"], table)
    write_json(args, {"rows_per_second": found})


def of_julia1(problem: Problem, settings: FineTuning) -> float:
    """Rows a second of one epoch of ``julia1 train``."""
    settings = replace(settings, epochs=1, evaluate_every=1)
    model, items = new_model(problem, settings), problem.items(problem.train)
    with tempfile.TemporaryDirectory() as folder:
        tuner = FineTuner(
            model,
            items,
            items[:1],
            problem.tokenizer.pad,
            settings,
            Path(folder),
            lambda *_: {"": 0.0},
            problem.tokenizer.mask,
        )
        began = time.perf_counter()
        tuner.run()
        return len(items) / (time.perf_counter() - began)


def of_trainer(problem: Problem, folder: Path, changes: dict[str, Any]) -> float:
    """Rows a second of one epoch of transformers' Trainer."""
    from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
    from transformers.utils import logging

    logging.set_verbosity_error()
    items, name = problem.items(problem.train), problem.spec.name
    rows = [{"ids": item.ids, "label": int(item.targets[name].argmax())} for item in items]

    def collate(batch: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        ids, mask = pad_rows([row["ids"] for row in batch], problem.tokenizer.pad)
        labels = torch.tensor([row["label"] for row in batch])
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask), "labels": labels}

    model: Any = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=problem.spec.outputs)
    with tempfile.TemporaryDirectory() as output:
        arguments = TrainingArguments(
            output,
            num_train_epochs=1,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            remove_unused_columns=False,
            **changes,
        )
        trainer = Trainer(model, arguments, data_collator=collate, train_dataset=rows)  # type: ignore[arg-type]
        began = time.perf_counter()
        trainer.train()
        return len(rows) / (time.perf_counter() - began)


if __name__ == "__main__":
    run(main)
