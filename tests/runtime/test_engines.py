"""Every engine gives the same answers from the same bundle, alone and in company, and uses the threads it was given."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch makes the toy models; bring it with the extra train")

from export_samples import CONFIGS, FEATURES, HEADS, WIDTH, new_model, write_fixed  # noqa: E402

from julia1 import Choice, Decider, EngineError, InputError, MissingExtraError, Score, YesNo, load  # noqa: E402
from julia1.bundle import Bundle, EncodingSettings  # noqa: E402
from julia1.bundle.heads import FeatureSpec, HeadSpec  # noqa: E402
from julia1.questions import Question  # noqa: E402
from julia1.runtime import probe  # noqa: E402
from julia1.runtime.engines import ENGINES, Engine, cannot_run, engine_file, missing_engine, open_engine  # noqa: E402
from julia1.runtime.plan import make_plan  # noqa: E402
from julia1.settings import bundled_models  # noqa: E402

SOURCE = Path(__file__).resolve().parents[2] / "src"
FP32 = 1e-4
"""How far a logit of one engine may be from that of another."""
COMPANY = 2e-5
"""How far a logit may move with what it is batched with; ONNX Runtime's tests ask for less."""
NAMES = ["food", "music and song", "hotel booking in the city", "refund of a card", "我想你", "x"]
QUESTIONS: dict[str, Question] = {
    "team": Choice("Which team?", NAMES),
    "late": YesNo("Is it late?", true="the order is not here"),
    "mood": Score("How upset?", ["calm", "angry", "furious"]),
}


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JULIA1_CACHE", str(tmp_path_factory.mktemp("cache")))
        for name in ("MODEL", "VARIANT", "ENGINE", "THREADS"):
            patch.delenv(f"JULIA1_{name}", raising=False)
        yield


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine that is installed, by name."""
    name: str = request.param
    if missing_engine(name):
        pytest.skip(missing_engine(name))
    return name


@pytest.fixture(scope="module", params=[name for name in ENGINES if name != "onnxruntime"])
def other(request: pytest.FixtureRequest) -> str:
    """Each engine beside ONNX Runtime, by name."""
    name: str = request.param
    if missing_engine(name):
        pytest.skip(missing_engine(name))
    return name


def loaded(bundle: Path, engine: str) -> Decider:
    return load(bundle, variant="fp32", engine=engine, threads=1, warm_up=False)


@pytest.fixture(scope="module")
def decider(engine: str, tiny_bundle: Path) -> Decider:
    return loaded(tiny_bundle, engine)


def opened(bundle: Bundle, engine: str, **settings: str) -> Engine:
    """The engine itself, on the fp32 variant."""
    path = bundle.path(engine_file(engine, bundle.variant("fp32")))
    return open_engine(engine, path, 1, settings)


def furthest(first: list[list[np.ndarray]], second: list[list[np.ndarray]]) -> float:
    return max(
        float(np.abs(a - b).max()) for x, y in zip(first, second, strict=True) for a, b in zip(x, y, strict=True)
    )


def requests(texts: list[str]) -> list[tuple[str, dict[str, Question]]]:
    """Texts with many questions, and with few."""
    few: dict[str, Question] = {"q": Choice(None, ["sport", "food"])}
    return [(text, QUESTIONS if i % 3 else few) for i, text in enumerate(texts)]


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


# which engine


def test_an_engine_is_named_by_argument_or_environment(
    other: str, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JULIA1_ENGINE", other)
    found = load(tiny_bundle, threads=1, warm_up=False)
    assert (found.plan.engine, found.plan.variant.name) == (other, "fp32")
    assert f"not int8: int8 is made for onnxruntime, and {other}" in found.plan.reason
    assert load(tiny_bundle, engine="onnxruntime", threads=1, warm_up=False).plan.engine == "onnxruntime"


def test_int8_is_refused_by_an_engine_it_is_not_made_for(other: str, tiny_bundle: Path) -> None:
    with pytest.raises(EngineError, match=f"'int8' cannot run here: .*{other} would not compute it rightly"):
        load(tiny_bundle, variant="int8", engine=other)


def test_a_variant_runs_on_the_engine_it_is_made_for_whatever_its_precision(tiny_bundle: Path) -> None:
    int8, fp32 = (Bundle.open(tiny_bundle).variant(name) for name in ("int8", "fp32"))
    assert [cannot_run(name, fp32) for name in (None, *ENGINES)] == [""] * 4
    assert cannot_run(None, int8) == cannot_run("onnxruntime", int8) == ""
    assert "made for onnxruntime" in cannot_run("openvino", int8)


@pytest.mark.parametrize("name", [name for name in ENGINES if name != "onnxruntime"])
def test_an_engine_that_is_not_installed_is_answered_with_the_line_that_brings_it(
    name: str, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, ENGINES[name], None)
    line = rf'{ENGINES[name]} is not installed: run  pip install "julia1\[{name}\]"'
    with pytest.raises(MissingExtraError, match=line):
        load(tiny_bundle, engine=name)
    bundle = Bundle.open(tiny_bundle)
    with pytest.raises(MissingExtraError, match=line):
        opened(bundle, name)


@pytest.mark.parametrize("package", ["transformers", "safetensors"])
def test_what_pytorch_needs_beside_itself_is_named(
    package: str, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf'{package} is not installed: run  pip install "julia1\[pytorch\]"'):
        load(tiny_bundle, engine="pytorch")


def test_an_unknown_setting_names_those_there_are(other: str, tiny_bundle: Path) -> None:
    bundle = Bundle.open(tiny_bundle)
    with pytest.raises(InputError, match=f"{other} has no setting 'streams'; it has: .*precision"):
        opened(bundle, other, streams="1")
    with pytest.raises(InputError, match=f"the setting 'precision' of {other} is 'int4': take one of f32, bf16"):
        opened(bundle, other, precision="int4")


@pytest.mark.parametrize("content", [None, b"", b"no model"])
def test_a_file_that_cannot_be_loaded_is_named(other: str, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "model.file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(EngineError, match=r"cannot load .*model\.file") as error:
        open_engine(other, path, 1)
    assert "\n" not in str(error.value)


def test_a_batch_that_fails_is_an_engine_error_and_the_next_one_runs(engine: str, tiny_bundle: Path) -> None:
    decider = loaded(tiny_bundle, engine)
    runs = decider._scorer._engine
    question = {"q": YesNo("Late?")}
    before = decider.logits([("a state", question)])
    with pytest.raises(EngineError, match=r"failed on a batch of shape \(1, 4\)"):
        runs.run(
            {"input_ids": np.zeros((1, 4), np.int64)}
            | {name: np.zeros((1, 4), np.float64) for name in runs.inputs if name != "input_ids"},
            ["logits"],
        )
    assert furthest(before, decider.logits([("a state", question)])) == 0


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


def test_pytorch_leaves_the_threads_of_the_process_as_they_are(tiny_bundle: Path) -> None:
    before = torch.get_num_threads()
    seen = []
    engine = opened(Bundle.open(tiny_bundle), "pytorch")
    engine._threads = before + 1  # type: ignore[attr-defined]
    with engine._own_threads():  # type: ignore[attr-defined]
        seen.append(torch.get_num_threads())
    assert seen == [before + 1]
    assert torch.get_num_threads() == before


# PyTorch: devices


@pytest.mark.parametrize(
    ("gpu", "bf16", "device", "precision", "chosen"),
    [
        (False, False, None, None, ("cpu", "f32")),
        (False, False, "cpu", "bf16", ("cpu", "bf16")),
        (True, True, None, None, ("cuda", "bf16")),
        (True, False, None, None, ("cuda", "fp16")),
        (True, True, None, "f32", ("cuda", "f32")),
        (True, True, "cpu", None, ("cpu", "f32")),
    ],
)
def test_a_gpu_is_taken_where_there_is_one_in_half_precision(
    monkeypatch: pytest.MonkeyPatch,
    gpu: bool,
    bf16: bool,
    device: str | None,
    precision: str | None,
    chosen: tuple[str, str],
) -> None:
    from julia1.runtime.engines.pytorch import choose_device

    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bf16)
    assert choose_device(device, precision) == chosen


def test_a_gpu_that_is_not_there_is_refused(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(EngineError, match="finds no GPU here"):
        opened(Bundle.open(tiny_bundle), "pytorch", device="cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Old GPU")
    with pytest.raises(EngineError, match="Old GPU has no bf16: take fp16 or f32"):
        opened(Bundle.open(tiny_bundle), "pytorch", precision="bf16")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("precision", ["f32", "bf16", "fp16"])
def test_answers_on_a_gpu(tiny_bundle: Path, precision: str, texts: list[str]) -> None:
    assert_half_close(tiny_bundle, "pytorch", texts, FP32 if precision == "f32" else 0.5, precision=precision)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_stays_close_in_pytorch(tiny_bundle: Path, precision: str, texts: list[str]) -> None:
    assert_half_close(tiny_bundle, "pytorch", texts, 0.5, device="cpu", precision=precision)


def assert_half_close(bundle: Path, engine: str, texts: list[str], limit: float, **settings: str) -> None:
    """Logits move, by less than the limit and by no more than a tenth of their spread."""
    exact = loaded(bundle, "onnxruntime")
    half = opened(Bundle.open(bundle), engine, **settings)
    decider = Decider(exact.manifest, exact._encoding.tokenizer, half, exact.plan)
    asked = requests(texts[:20])
    first, second = exact.logits(asked), decider.logits(asked)
    assert furthest(first, second) < limit
    if settings["precision"] != "f32":
        assert furthest(first, second) > 1e-5, "that was not computed in half precision"


def test_tuning_and_plans_know_the_engines(other: str, tiny_bundle: Path) -> None:
    plan = make_plan(Bundle.open(tiny_bundle), probe(), engine=other, tuned=False)
    assert plan.engine == other
    assert plan.length_step == (8 if other == "openvino" else 1)


def test_features_of_the_samples_are_those_the_tests_give() -> None:
    assert set(FEATURES.numbers) | set(FEATURES.categories) == {"age", "plan"}
