"""Every engine gives the same answers from the same bundle, alone and in company, and uses the threads it was given."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch makes the toy models; bring it with the extra train")

from engine_samples import FP32, NAMES, QUESTIONS, furthest, loaded, opened, requests  # noqa: E402
from export_samples import CONFIGS, FEATURES, HEADS, WIDTH, new_model, write_fixed  # noqa: E402

from julia1 import Choice, Decider  # noqa: E402
from julia1.bundle import Bundle, EncodingSettings  # noqa: E402
from julia1.bundle.heads import FeatureSpec, HeadSpec  # noqa: E402
from julia1.settings import bundled_models  # noqa: E402

SOURCE = Path(__file__).resolve().parents[2] / "src"
COMPANY = 2e-5
"""How far a logit may move with what it is batched with; ONNX Runtime's tests ask for less."""

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def decider(engine: str, tiny_bundle: Path) -> Decider:
    return loaded(tiny_bundle, engine)


# the same answers


def test_open_decisions_are_those_of_onnx_runtime(other: str, tiny_bundle: Path, texts: list[str]) -> None:
    asked = requests(texts)
    found = loaded(tiny_bundle, other)
    assert found.plan.engine == other
    assert furthest(found.logits(asked), loaded(tiny_bundle, "onnxruntime").logits(asked)) < FP32


def test_an_embedding_of_four_bits_is_read_by_every_engine(
    other: str, tmp_path: Path, tokenizer_file: Path, texts: list[str]
) -> None:
    """OpenVINO rounds what a shift of uint8 should cut off: half of the weights would be one step too large."""
    model = new_model("bert", HEADS[:1], None)
    table = model.encoder.get_input_embeddings().weight
    numbers = torch.randint(-8, 8, (*table.shape[:1], WIDTH // 32, 32))
    numbers[..., 5] = -8
    with torch.no_grad():
        table.copy_((numbers * (torch.rand(*numbers.shape[:2], 1) * 0.1).half().float()).flatten(1))
    bundle = write_fixed(
        tmp_path / "blocks", tokenizer_file, heads=HEADS[:1], features=None, encoding=PLAIN, model=model
    )
    first, second = (loaded(bundle.folder, name).head_logits(texts)["topic"] for name in ("onnxruntime", other))
    assert furthest([first], [second]) < FP32


PLAIN = EncodingSettings("fixed", 24)
PAIR = (HeadSpec("same", "match"), HeadSpec("level", "score", ("0", "1")))


def with_languages() -> Any:
    """A model with heads by language behind a gate that knows two."""
    from julia1.model import new_encoder
    from julia1.model.fixed_model import FixedModel

    torch.manual_seed(5)
    model: Any = FixedModel(new_encoder(CONFIGS["bert"]), HEADS[:2], languages=("aa", "bb"))
    with torch.no_grad():
        for parameter in model.heads.parameters():
            torch.nn.init.normal_(parameter, 0.0, 0.2)
        model.gate.table.copy_(
            torch.cat([torch.randn(len(model.gate.table), 2), torch.ones(len(model.gate.table), 1)], 1)
        )
        model.gate.floor.fill_(-0.2)
    return model.eval()


FIXED: dict[str, Callable[[Path, Path], Bundle]] = {
    "bert": lambda target, tokenizer: write_fixed(target, tokenizer, "bert"),
    "modernbert": lambda target, tokenizer: write_fixed(target, tokenizer, "modernbert"),
    "languages": lambda target, tokenizer: write_fixed(
        target, tokenizer, heads=HEADS[:2], features=None, encoding=PLAIN, model=with_languages()
    ),
    "pair": lambda target, tokenizer: write_fixed(
        target, tokenizer, heads=PAIR, features=None, encoding=EncodingSettings("pair", 40)
    ),
    "categories alone": lambda target, tokenizer: write_fixed(
        target, tokenizer, heads=HEADS[:1], features=FeatureSpec({}, {"plan": ("free", "paid")}),
        encoding=EncodingSettings("fixed", 24, windows=3, overlap=4, aggregation="attention"),
    ),
}  # fmt: skip
"""Models with windows, tags, towers and features; heads by language; pairs."""


@pytest.fixture(scope="module", params=FIXED)
def fixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tokenizer_file: Path) -> Bundle:
    return FIXED[request.param](tmp_path_factory.mktemp("fixed") / "bundle", tokenizer_file)


def all_outputs(decider: Decider, texts: list[str]) -> dict[str, list[np.ndarray]]:
    spec = decider.manifest.features
    values = {"age": 31.5, "plan": "paid"}
    known = {name: value for name, value in values.items() if name in (*spec.numbers, *spec.categories)}
    features = [known if i % 2 else {} for i in range(len(texts))] if spec else None
    seconds = texts[::-1] if decider.manifest.encoding.type == "pair" else None
    return decider.head_logits(texts, features, seconds)


def test_fixed_heads_are_those_of_onnx_runtime(other: str, fixed: Bundle, texts: list[str]) -> None:
    expected = all_outputs(loaded(fixed.folder, "onnxruntime"), texts)
    found = all_outputs(loaded(fixed.folder, other), texts)
    assert expected.keys() == found.keys()
    for name, values in expected.items():
        assert furthest([values], [found[name]]) < FP32, name
        assert np.ptp(np.concatenate([np.ravel(value) for value in values])) > 0.1, "a model that says the same to all"


def test_company_moves_no_fixed_head(engine: str, fixed: Bundle, texts: list[str]) -> None:
    decider = loaded(fixed.folder, engine)
    seconds = texts[::-1] if decider.manifest.encoding.type == "pair" else [None] * len(texts)
    together = decider.head_logits(texts, None, seconds)
    for i in range(0, len(texts), 5):
        alone = decider.head_logits(texts[i : i + 1], None, seconds[i : i + 1])
        for name, (values,) in alone.items():
            assert furthest([[values]], [[together[name][i]]]) < COMPANY, name


def test_inputs_are_those_of_the_graph(other: str, tiny_bundle: Path, fixed: Bundle) -> None:
    for bundle in (Bundle.open(tiny_bundle), fixed):
        expected, found = opened(bundle, "onnxruntime").inputs, opened(bundle, other).inputs
        assert expected.keys() == found.keys()
        for name, shape in expected.items():
            numbers = [axis for axis in shape if isinstance(axis, int)]
            assert [axis for axis in found[name] if isinstance(axis, int)] == numbers
            assert len(found[name]) == len(shape)


# company, order, shapes


def test_a_batch_moves_no_logit(decider: Decider, texts: list[str]) -> None:
    asked = requests(texts)
    alone = [decider.logits([request])[0] for request in asked]
    assert furthest(alone, decider.logits(asked)) < COMPANY
    assert furthest(alone, decider.logits(asked, batch_tokens=150)) < COMPANY


def test_the_order_of_options_moves_no_logit(decider: Decider, texts: list[str]) -> None:
    random = np.random.default_rng(3)
    for text in texts[:12]:
        order = random.permutation(len(NAMES))
        ((first,),) = decider.logits([(text, {"q": Choice("Which?", NAMES)})])
        ((second,),) = decider.logits([(text, {"q": Choice("Which?", [NAMES[i] for i in order])})])
        assert first[order] == pytest.approx(second, abs=COMPANY)


def test_what_was_asked_before_moves_no_logit(engine: str, tiny_bundle: Path, texts: list[str]) -> None:
    fresh, warm = loaded(tiny_bundle, engine), loaded(tiny_bundle, engine)
    for name in NAMES:
        warm.logits([("music", {"q": Choice("Which?", [name, "hotel"])})])
    asked = requests(texts[:9])
    assert furthest(warm.logits(asked), [fresh.logits([request])[0] for request in asked]) < COMPANY


@pytest.mark.parametrize(("rows", "context", "options"), [(1, 0, 1), (3, 0, 2), (2, 5, 3), (1, 48, 1)])
def test_every_output_is_right_in_any_shape_an_empty_context_too(
    other: str, tiny_bundle: Path, rows: int, context: int, options: int
) -> None:
    bundle = Bundle.open(tiny_bundle)
    reference = opened(bundle, "onnxruntime")
    random = np.random.default_rng(rows)
    width = int(reference.inputs["option_vectors"][2])
    feeds: dict[str, Any] = {
        "input_ids": random.integers(5, 200, (rows, 9)),
        "position_ids": np.tile(np.arange(9), (rows, 1)),
        "branches": np.tile([0, 0, 0, 0, 1, 1, 2, 2, -1], (rows, 1)),
        "leaves": np.tile([0, 0, 0, 0, 0, 1, 0, 2, 0], (rows, 1)),
        "markers": random.choice([5, 7], (rows, options)),
        "option_vectors": random.standard_normal((rows, options, width)).astype(np.float32),
        "context_leaves": random.integers(0, 3, (rows, context)),
    }
    for name in reference.inputs.keys() - feeds.keys():
        feeds[name] = random.standard_normal((rows, context, width)).astype(np.float32)
    names = ["trunk", "keys.1", "logits", "values.0", "keys.0", "values.1"]
    engine = opened(bundle, other)
    for _ in range(2):
        for name, wanted, found in zip(names, reference.run(feeds, names), engine.run(feeds, names), strict=True):
            assert found.dtype == np.float32
            assert found.shape == wanted.shape
            assert np.abs(found - wanted).max() < FP32, name


def test_results_are_the_callers_own(engine: str, tiny_bundle: Path, texts: list[str]) -> None:
    """The next call does not write over them."""
    scorer = loaded(tiny_bundle, engine)._scorer
    seen: list[tuple[list[np.ndarray], list[np.ndarray]]] = []
    plain = scorer._engine.run

    def run(feeds: Any, outputs: Any) -> list[np.ndarray]:
        found = plain(feeds, outputs)
        seen.append((found, [values.copy() for values in found]))
        return found

    scorer._engine.run = run  # type: ignore[method-assign]
    decider = loaded(tiny_bundle, engine)
    decider._scorer = scorer
    for text in texts[:6]:
        decider.decide(text, QUESTIONS)
    assert all(np.array_equal(a, b) for found, copies in seen for a, b in zip(found, copies, strict=True))


def test_threads_that_share_a_decider_get_the_serial_answers(decider: Decider, texts: list[str]) -> None:
    some = requests(texts[:16])
    serial = [decider.logits([request])[0] for request in some]
    wrong: list[float] = []
    start = threading.Barrier(6)

    def work(number: int) -> None:
        start.wait()
        for i in range(len(some)):
            index = (i + 3 * number) % len(some)
            moved = furthest(decider.logits([some[index]]), [serial[index]])
            if moved > COMPANY:
                wrong.append(moved)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.slow
def test_the_bundled_model_answers_alike_on_every_engine(other: str) -> None:
    folder = bundled_models() / "julia1-open-small"
    if not (folder / "bundle.json").is_file():
        pytest.skip(f"the bundled model is not at {folder}")
    texts = ["I was charged twice for one order", "明天早上七点叫我起床", "Der Film war sehr gut.", "late " * 90]
    asked: list[Any] = [(text, QUESTIONS) for text in texts]
    assert furthest(loaded(folder, other).logits(asked), loaded(folder, "onnxruntime").logits(asked)) < FP32


# threads


BUSY = """
import os, sys
from pathlib import Path
import julia1
from julia1 import Choice

def ticks():
    found = {}
    for task in Path("/proc/self/task").iterdir():
        fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
        found[task.name] = int(fields[11]) + int(fields[12])
    return found

decider = julia1.load(sys.argv[1], variant="fp32", engine=sys.argv[2], threads=int(sys.argv[3]))
texts = [f"where is my order number {i} and why is it late" for i in range(60)]
before, spent = ticks(), 0
while spent < 60:
    decider.decide_many(texts, {"q": Choice("Which?", ["food", "music", "late order"])})
    after = ticks()
    spent = sum(after.values()) - sum(before.values())
busy = sorted((after[name] - before.get(name, 0) for name in after), reverse=True)
print(busy[0] / sum(busy))
"""


def ran(*arguments: object, cpus: set[int] | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, on these CPUs."""
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    limit = (lambda: os.sched_setaffinity(0, cpus)) if cpus else None
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, **environment},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the time of a thread is read where Linux has it")
def test_one_thread_is_one_busy_thread(engine: str, tiny_bundle: Path) -> None:
    """The engine's pool, BLAS and the tokenizer's pool included."""
    done = ran("-c", BUSY, tiny_bundle, engine, 1, OMP_NUM_THREADS="", RAYON_NUM_THREADS="")
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0.9, f"the busiest thread did {float(done.stdout):.0%} of the work"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinity is set where the system has it")
def test_a_process_that_is_kept_to_one_cpu_says_nothing_of_affinity(engine: str, tiny_bundle: Path) -> None:
    """As under ``taskset``: threads of an engine must not be pinned to CPUs that the process may not use."""
    last = max(os.sched_getaffinity(0))
    done = ran("-m", "julia1.cli", "decide", "late order", "--yesno", "Late?", "--model", tiny_bundle, "--engine",
               engine, "--threads", 2, cpus={last})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_features_of_the_samples_are_those_the_tests_give() -> None:
    assert set(FEATURES.numbers) | set(FEATURES.categories) == {"age", "plan"}
