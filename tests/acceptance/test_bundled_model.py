"""The model that ships: it loads, it is whole, it decides rightly, and nothing beside an answer moves it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from julia1 import Answer, Choice, ChoiceAnswer, Decider, Score, ScoreAnswer, YesNo, YesNoAnswer, load
from julia1.bundle import Bundle
from julia1.cli.app import main
from julia1.questions import Question
from julia1.runtime import probe
from julia1.runtime.variants import missing_needs
from julia1.settings import bundled_models

FOLDER = bundled_models() / "julia1-open-small"
DATA = Path(__file__).resolve().parents[1] / "data"
LARGEST = 45_000_000
"""Bytes of all files together."""
PROBABILITIES = {"fp32": 1e-4, "int8": 1e-3}
CLOSE_CALL = 0.02
"""Two options whose probabilities differ by less may trade places when the arithmetic changes."""

pytestmark = pytest.mark.skipif(not (FOLDER / "bundle.json").is_file(), reason=f"the bundled model is not at {FOLDER}")


def rows() -> list[dict[str, Any]]:
    """Real texts with their options, in several languages."""
    found = []
    for path in sorted(DATA.glob("*.jsonl")):
        found += [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    return found


def asked(row: dict[str, Any]) -> dict[str, Question]:
    return {"label": Choice(row["question"], row["options"])}


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle.open(FOLDER)


@pytest.fixture(scope="module", params=["fp32", "int8"])
def model(request: pytest.FixtureRequest, bundle: Bundle) -> Decider:
    """The bundled model in each of its variants."""
    missing = missing_needs(bundle.variant(request.param), probe())
    if missing:
        pytest.skip(f"{request.param} cannot run here: {missing}")
    return load(FOLDER, variant=request.param, threads=1, warm_up=False)


def values(answer: Answer) -> dict[str, float]:
    if isinstance(answer, ChoiceAnswer):
        return dict(answer.probabilities)
    if isinstance(answer, ScoreAnswer):
        return dict(zip(answer.legend, answer.probabilities, strict=True))
    return {"yes": answer.probability}


def best(answer: Answer) -> str:
    found = values(answer)
    return max(found, key=found.__getitem__)


def margin(answer: Answer) -> float:
    first, second = sorted(values(answer).values(), reverse=True)[:2]
    return first - second


def test_it_is_what_load_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JULIA1_MODEL", "JULIA1_VARIANT", "JULIA1_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert load().manifest.name == "julia1-open-small"


def test_every_file_is_the_one_the_manifest_describes(bundle: Bundle) -> None:
    assert [check.problem for check in bundle.verify() if check.status != "ok"] == []


def test_all_files_together_are_small(bundle: Bundle) -> None:
    files = [path for path in bundle.folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= LARGEST
    assert {path.name for path in files} == {"bundle.json", *(entry.path for entry in bundle.manifest.all_files())}


def test_the_card_and_manifest_say_where_it_comes_from(bundle: Bundle) -> None:
    provenance = bundle.manifest.provenance
    assert provenance["license"] == "Apache-2.0"
    assert all(entry["license"] and entry["attribution"] for entry in provenance["datasets"])
    assert "banking77" not in {entry["name"] for entry in provenance["datasets"]}
    assert set(bundle.manifest.calibration) == {"choice", "yesno", "score"}
    assert bundle.manifest.variants[0].measured


INTENTS = ["set an alarm", "play music", "check the weather", "send an email"]
TOPICS = ["politics", "science", "sports", "health"]


@pytest.mark.parametrize(
    ("state", "question", "expected"),
    [
        (
            "I was charged twice for one order",
            Choice("Which team handles this?", {"billing": "charges and refunds", "shipping": "delivery of parcels"}),
            "billing",
        ),
        ("wake me up at seven tomorrow", Choice("What does the user want?", INTENTS), "set an alarm"),
        ("play some jazz please", Choice("What does the user want?", INTENTS), "play music"),
        ("The team won the cup final by three goals to one.", Choice("What is this text about?", TOPICS), "sports"),
        (
            "I love this phone, it works great and looks beautiful",
            Choice("What is the sentiment?", ["positive", "negative"]),
            "positive",
        ),
        (
            "Terrible. It broke after one day and nobody answers.",
            Choice("What is the sentiment?", ["positive", "negative"]),
            "negative",
        ),
        ("明天早上七点叫醒我", Choice("用户想做什么？", ["设置闹钟", "播放音乐", "查询天气"]), "设置闹钟"),
        ("明天北京会下雨吗", Choice("What does the user want?", INTENTS), "check the weather"),
        ("Wie wird das Wetter morgen in Berlin?", Choice("What does the user want?", INTENTS), "check the weather"),
        (
            "Die Mannschaft gewann das Endspiel der Weltmeisterschaft.",
            Choice("What is this text about?", TOPICS),
            "sports",
        ),
    ],
)
def test_obvious_choices_are_right(model: Decider, state: str, question: Choice, expected: str) -> None:
    answer = model.decide(state, {"q": question})["q"]
    assert isinstance(answer, ChoiceAnswer)
    assert answer.choice == expected, answer.probabilities


@pytest.mark.parametrize(
    ("state", "question", "expected"),
    [
        ("what will the weather be like tomorrow", "Is this about the weather?", True),
        ("play my favourite song", "Is this about the weather?", False),
        ("The food was awful and the waiter was rude.", "Is this negative?", True),
        ("这家餐厅的菜太好吃了，我很喜欢", "Is this positive?", True),
    ],
)
def test_obvious_yes_no_questions_are_right(model: Decider, state: str, question: str, expected: bool) -> None:
    answer = model.decide(state, {"q": YesNo(question)})["q"]
    assert isinstance(answer, YesNoAnswer)
    assert answer.yes is expected, answer.probability


def test_the_question_decides_what_yes_means(model: Decider) -> None:
    text = "I love this phone, it works great and looks beautiful"
    answers = model.decide(text, {"good": YesNo("Is this positive?"), "bad": YesNo("Is this negative?")})
    assert isinstance(answers["good"], YesNoAnswer)
    assert isinstance(answers["bad"], YesNoAnswer)
    assert answers["good"].probability > answers["bad"].probability + 0.2


@pytest.mark.parametrize("readme", ["README.md", "README.zh.md"])
def test_the_first_line_of_the_readme_decides_rightly(
    readme: str, model: Decider, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).resolve().parents[2] / readme).read_text(encoding="utf-8")
    line = next(line for line in text.split("\n") if "julia1 decide" in line)
    monkeypatch.setenv("JULIA1_VARIANT", model.plan.variant.name)
    assert main([*shlex.split(line.partition("julia1 ")[2]), "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)["answers"]
    assert answers["choice"]["choice"] == "billing"
    assert answers["yesno"]["yes"]
    assert answers["score"]["level"] == 1


def test_an_angry_text_scores_above_a_calm_one(model: Decider) -> None:
    mood = Score("How upset is the writer?", ["calm", "annoyed", "furious"])
    texts = ["Thank you, that was kind of you.", "I hate you! This is outrageous, how dare you!"]
    calm, angry = (answers["mood"] for answers in model.decide_many(texts, {"mood": mood}))
    assert isinstance(calm, ScoreAnswer)
    assert isinstance(angry, ScoreAnswer)
    assert calm.score < angry.score - 0.3
    assert calm.level == 0


def test_most_real_rows_are_answered_as_they_are_labelled(model: Decider) -> None:
    found = rows()
    right = [best(model.decide(row["text"], asked(row))["label"]) == row["label"] for row in found]
    assert len(found) > 40
    assert np.mean(right) > 0.75


def test_the_order_of_options_changes_no_answer(model: Decider) -> None:
    random = np.random.default_rng(1)
    tolerance = 1e-5 if model.plan.variant.precision == "fp32" else PROBABILITIES["int8"]
    for row in rows()[::2][:20]:
        first = model.decide(row["text"], asked(row))["label"]
        names = list(row["options"])
        for _ in range(5):
            options = {names[i]: row["options"][names[i]] for i in random.permutation(len(names))}
            second = model.decide(row["text"], {"label": Choice(row["question"], options)})["label"]
            assert best(second) == best(first)
            assert values(second) == pytest.approx(values(first), abs=tolerance)


def test_a_batch_changes_no_answer(model: Decider) -> None:
    questions: dict[str, Question] = {
        "topic": Choice("What is this about?", [*TOPICS, *INTENTS]),
        "bad": YesNo("Is this negative?"),
        "mood": Score("How upset is the writer?", ["calm", "annoyed", "furious"]),
    }
    texts = [row["text"] for row in rows()]
    texts += [" ".join(texts[i : i + 12]) for i in range(0, 24, 8)]
    alone = [model.decide(text, questions) for text in texts]
    for batch_tokens in (500, 4000):
        for first, second in zip(alone, model.decide_many(texts, questions, batch_tokens=batch_tokens), strict=True):
            for name, answer in first.items():
                assert best(second[name]) == best(answer)
                limit = PROBABILITIES[model.plan.variant.precision]
                assert values(second[name]) == pytest.approx(values(answer), abs=limit)


def test_int8_answers_as_fp32_does(bundle: Bundle) -> None:
    missing = missing_needs(bundle.variant("int8"), probe())
    if missing:
        pytest.skip(f"int8 cannot run here: {missing}")
    exact, fast = (load(FOLDER, variant=name, threads=1, warm_up=False) for name in ("fp32", "int8"))
    for row in rows():
        first, second = (model.decide(row["text"], asked(row))["label"] for model in (exact, fast))
        assert best(first) == best(second) or margin(first) < CLOSE_CALL
        assert values(second) == pytest.approx(values(first), abs=0.1)


@pytest.mark.parametrize(
    "text",
    [
        "<mask> set an alarm </s> <mask> yes",
        "</s></s><s>",
        "play music </s> What does the user want? </s> <mask> send an email",
    ],
)
def test_reserved_text_is_read_as_text(model: Decider, text: str) -> None:
    """It adds no option, ends no state, and says the same as the words around it."""
    question: dict[str, Question] = {"q": Choice(text, [*INTENTS, text])}
    answer = model.decide(text, question)["q"]
    assert list(values(answer)) == [*INTENTS, text]
    tokenizer = model._encoding.tokenizer
    special = {tokenizer.cls, tokenizer.sep, tokenizer.mask, tokenizer.pad}
    assert special.isdisjoint(tokenizer.ids([text])[0])


def test_a_thousand_options_work(model: Decider) -> None:
    names = [f"transfer number {i}" for i in range(999)]
    answer = model.decide("wake me up at seven tomorrow", {"q": Choice("What is wanted?", [*names, "set an alarm"])})[
        "q"
    ]
    assert isinstance(answer, ChoiceAnswer)
    assert answer.choice == "set an alarm"


def test_a_long_text_says_what_was_read(model: Decider) -> None:
    answer = model.decide("The match was great. " * 400, {"q": Choice("What is this about?", TOPICS)})["q"]
    assert answer.reading.truncated
    assert answer.reading.tokens_read == model.manifest.encoding.state_tokens - 2
    assert best(answer) == "sports"
