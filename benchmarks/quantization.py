"""Ways to quantize an ONNX classifier: julia1's, and those of onnxruntime.quantization as its documentation has them.

  fp32                   the file as it is
  julia1 dynamic         int8, one step a row of activations; with and without evening out channels with outliers
  julia1 static          int8, calibrated steps, by each method
  julia1 weights         int8 or int4 weights, products in fp32
  ORT dynamic            quantize_dynamic, int8 weights by channel, MatMul, Gemm and Gather
  ORT static             quantize_static (QDQ) with int8 and with uint8 activations, MinMax, int8 weights by channel

For each: the metric and the share of answers that are those of fp32 on the same rows; how far logits move when a row is
padded to twice its length among seven others; file size; and how many times as fast as fp32 a row is, one thread, in
turn row by row. The rows are cut in two: the first half calibrates, the second measures.

    julia1 export model/bundle -o exported
    scripts/bench quantization --onnx exported/model.onnx --rows-file val.jsonl
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from _common import parser, print_table, run, write_json
from julia1.export.onnx_file import read_model
from julia1.optimize.config import Calibration, ModelFiles, Quantize
from julia1.optimize.graph import Arrays, OperatorGraph, new_session
from julia1.optimize.graph import run as answered
from julia1.optimize.judging import figures
from julia1.optimize.quantize.observing import METHODS
from julia1.optimize.rows import Rows, logits_of, read_labelled
from julia1.optimize.steps import Quantizer
from julia1.optimize.timing import measure

NEIGHBOURS, CHECKED = 7, 60


def main() -> None:
    made = parser(__doc__, model=False, data=False)
    made.add_argument("--onnx", type=Path, required=True, metavar="FILE", help="the classifier, in fp32")
    made.add_argument("--rows-file", type=Path, required=True, metavar="FILE", help="labelled rows, or .npz")
    made.add_argument("--tokenizer", metavar="FILE", help="tokenizer.json (default: the one beside the model)")
    made.add_argument("--max-tokens", type=int, default=128, help="of a text (default: %(default)s)")
    made.add_argument("--calibrate", type=int, default=128, help="rows to calibrate on (default: %(default)s)")
    args = made.parse_args()
    model = read_model(args.onnx)
    files = ModelFiles(str(args.onnx), "", args.tokenizer, None, args.max_tokens)
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = [value.name for value in model.graph.input if value.name not in stored]
    whole = read_labelled(files, inputs, args.rows_file, None, 0)
    half = len(whole.feeds) // 2
    rows = Rows(whole.feeds[half:], whole.wanted[half:], whole.classes)
    calibration = list(whole.feeds[:half][: args.calibrate])
    models = {"fp32": model}
    judged = {"fp32": logits_of(new_session(model, optimised=True), rows)}
    for name, make in ways(OperatorGraph(model, calibration[0]), args.onnx, calibration):
        print(f"  {name}", file=sys.stderr, flush=True)
        try:
            made_model = make()
            judged[name] = logits_of(new_session(made_model, optimised=True), rows)
            models[name] = made_model
        except Exception as error:  # a peer that fails is a result too
            print(f"{name} failed: {error}", flush=True)
    stages = {
        stage.name: stage for stage in measure(models, rows.feeds, lambda line: print(f"  {line}", file=sys.stderr))
    }
    right = judged["fp32"].argmax(1)
    table, records = [], {}
    for name, logits in judged.items():
        found = figures(logits, rows.wanted)
        records[name] = {
            **found,
            "same_answers": float((logits.argmax(1) == right).mean()),
            "moved_by_padding": moved(models[name], rows.feeds[:CHECKED]),
            "bytes": stages[name].bytes,
            "p50_seconds": stages[name].p50,
            "times_as_fast": stages[name].faster,
        }
        one = records[name]
        table.append(
            [
                name,
                f"{one['macro_f1']:.4f}",
                f"{one['same_answers']:.2%}",
                f"{one['moved_by_padding']:.1e}",
                f"{one['bytes'] / 1e6:.1f}",
                f"{one['p50_seconds'] * 1e3:.2f}",
                f"{one['times_as_fast']:.2f}",
            ]
        )
    print_table(["way", "macro-F1", "same answers", "moved by padding", "MB", "p50 ms", "times as fast"], table)
    write_json(args, {"rows": len(rows.feeds), "ways": records})


def ways(
    graph: OperatorGraph, file: Path, rows: Sequence[Arrays]
) -> Iterator[tuple[str, Callable[[], onnx.ModelProto]]]:
    """Names, and what makes the model."""
    quantizer = Quantizer(Quantize("quantize"), graph, rows, Calibration())
    yield "julia1 dynamic", lambda: quantizer.applied(Quantize("quantize"))
    yield "julia1 dynamic, not evened out", lambda: quantizer.applied(Quantize("quantize", smoothing=False))
    yield "julia1 dynamic, 7 bits", lambda: quantizer.applied(Quantize("quantize", reduce_range=True))
    for method in METHODS:
        static = Quantizer(Quantize("quantize", "static"), graph, rows, Calibration(method=method))
        yield f"julia1 static, {method}", lambda static=static: static.applied(Quantize("quantize", "static"))  # type: ignore[misc]
    for bits in (8, 4):
        step = Quantize("quantize", "weight_only", bits, 32)
        yield f"julia1 weights, int{bits}", lambda step=step: quantizer.applied(step)  # type: ignore[misc]
    yield "ORT dynamic", lambda: by_onnxruntime(file, None, "")
    for kind in ("QInt8", "QUInt8"):
        yield f"ORT static, {kind}", lambda kind=kind: by_onnxruntime(file, rows, kind)  # type: ignore[misc]


def by_onnxruntime(file: Path, rows: Sequence[Arrays] | None, activations: str) -> onnx.ModelProto:
    """What onnxruntime.quantization makes of a model."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._rows = iter(rows or [])

        def get_next(self) -> Any:
            feeds = next(self._rows, None)
            return None if feeds is None else dict(feeds)

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "made.onnx"
        if rows is None:
            quantize_dynamic(
                file,
                target,
                op_types_to_quantize=["MatMul", "Gemm", "Gather"],
                per_channel=True,
                weight_type=QuantType.QInt8,
            )
        else:
            quantize_static(
                file,
                target,
                Reader(),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                activation_type=QuantType[activations],
                weight_type=QuantType.QInt8,
                op_types_to_quantize=["MatMul", "Gemm", "Gather"],
            )
        return read_model(target)


def moved(model: onnx.ModelProto, rows: Sequence[Arrays]) -> float:
    """Largest movement of a logit when a row is padded to twice its length and has neighbours."""
    session = new_session(model, optimised=True)
    name = session.get_outputs()[0].name
    largest = 0.0
    for place in range(0, len(rows) - NEIGHBOURS, NEIGHBOURS + 1):
        batch = rows[place : place + NEIGHBOURS + 1]
        if any(value.ndim != 2 for feeds in batch for value in feeds.values()):
            return float("nan")
        width = 2 * max(value.shape[1] for feeds in batch for value in feeds.values())
        together = {key: np.concatenate([_wide(feeds[key], width) for feeds in batch]) for key in batch[0]}
        found = answered(session, [name], together)[0]
        for number, feeds in enumerate(batch):
            largest = max(largest, float(np.abs(found[number] - answered(session, [name], feeds)[0][0]).max()))
    return largest


def _wide(value: npt.NDArray[Any], width: int) -> npt.NDArray[Any]:
    """A row filled up with zeros, which a mask of zeros leaves out."""
    return np.pad(value, ((0, 0), (0, width - value.shape[1])))


if __name__ == "__main__":
    run(main)
