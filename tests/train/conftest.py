"""Small made-up labelled sets, in the form of the shared ones, and a recipe over them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from julia1.train.recipe import Recipe, Source, Training, load_recipe

RECIPE = Path(__file__).resolve().parents[2] / "recipes/bundled.yaml"

INTENTS = {
    "alarm set": ("set an alarm", "设置闹钟", ["set an alarm for {}", "alarm at {} please"]),
    "alarm remove": ("remove an alarm", "删除闹钟", ["remove the alarm at {}", "no alarm at {}"]),
    "music play": ("play a song", "播放音乐", ["play a song at {}", "how do i play music at {}"]),
    "weather query": ("ask about the weather", "查询天气", ["what is the weather at {}", "how hot is it at {}"]),
    "bill pay": ("pay a bill", "支付账单", ["pay the bill at {}", "who pays the bill at {}"]),
    "out of scope": ("none of the assistant's tasks", "其他问题", ["i love you at {}", "where is love at {}"]),
}
EMOTIONS = {
    "anger": ("the speaker is angry", "愤怒"),
    "disgust": ("the speaker is disgusted", "厌恶"),
    "fear": ("the speaker is afraid", "恐惧"),
    "joy": ("the speaker is happy", "快乐"),
    "sadness": ("the speaker is sad", "悲伤"),
    "trust": ("the speaker trusts", "信任"),
}
POLARITY = {name: "positive" if name in ("joy", "trust") else "negative" for name in EMOTIONS}
LANGUAGES = {"en": ["English"], "zh": ["Chinese"], "it": ["Italian"], "de": ["German"]}


def intents(hours: range) -> list[dict[str, Any]]:
    """English rows with their Chinese and Italian translations, which share a group."""
    rows = []
    for label, (_, chinese, texts) in INTENTS.items():
        for hour in hours:
            for i, text in enumerate(texts):
                group = f"{label}-{hour}-{i}"
                rows.append({"text": text.format(hour), "label": label, "group": group, "lang": "en"})
                rows.append({"text": f"{chinese}{hour}点{i}", "label": label, "group": group, "lang": "zh"})
                rows.append({"text": f"{label} alle {hour} {i}", "label": label, "group": group, "lang": "it"})
    return rows


def emotions() -> list[dict[str, Any]]:
    names = list(EMOTIONS)
    rows: list[dict[str, Any]] = []
    for i in range(48):
        labels = [] if i % 7 == 0 else [names[i % 6]] if i % 3 else [names[i % 6], names[(i * 5 + 1) % 6]]
        row = {"text": f"speaker {i} says this", "labels": list(dict.fromkeys(labels)), "lang": ("en", "zh")[i % 2]}
        if i % 5 == 0:
            row["unknown"] = [name for name in names if name not in labels][:2]
        rows.append(row)
    return rows


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the made-up sets."""
    folder = tmp_path_factory.mktemp("data")
    labels = {name: text for name, (text, *_) in INTENTS.items()}
    chinese = {name: text for name, (_, text, _) in INTENTS.items()}
    write_set(
        folder / "intents",
        {
            "question": "What does the user want?",
            "question_zh": "用户想做什么？",
            "labels": labels,
            "labels_zh": chinese,
        },
        {"train": intents(range(1, 9)), "val": intents(range(9, 12))},
    )
    write_set(
        folder / "emotions",
        {
            "question": "Which emotions does the speaker show?",
            "labels": {name: text for name, (text, _) in EMOTIONS.items()},
            "labels_zh": {name: text for name, (_, text) in EMOTIONS.items()},
        },
        {"train": emotions()},
    )
    stars = {str(n): text for n, text in enumerate(("very bad", "bad", "fair", "good", "very good"), 1)}
    write_set(
        folder / "stars",
        {
            "question": "How many stars?",
            "labels": stars,
            "labels_zh": {n: f"{n}星" for n in stars},
            "score": {"min": 1, "max": 5},
        },
        {
            "train": [
                {"text": "food " * (i * 30 + 1), "score": 1 + (i * 0.5) % 4, "lang": ("en", "zh")[i % 2]}
                for i in range(12)
            ]
        },
    )
    write_set(
        folder / "pairs",
        {"question": "Same?", "labels": {"same meaning": "the same", "different meaning": "not the same"}},
        {
            "train": [
                {"text": f"a {i}", "text_b": f"b {i}", "label": ("same meaning", "different meaning")[i % 2]}
                for i in range(6)
            ]
        },
    )
    write_set(
        folder / "open",
        {"question": "Which is right?", "labels": {}},
        {
            "train": [
                {"text": "it rained", "question": "why?", "options": ["clouds", "sun", " clouds "], "answer": 2},
                {"text": "a state", "question": "", "options": ["yes", "no"], "answer": 0},
                {"text": "one only", "question": "?", "options": ["yes", " yes"], "answer": 0},
                {"text": "too long", "question": "why?", "options": ["x" * 161, "y"], "answer": 1},
            ]
        },
    )
    shouted = {"text": "Set an ALARM, for 3!", "label": "alarm set"}
    write_set(folder / "held", {"question": "?", "labels": {"alarm set": "x"}}, {"test": [shouted]})
    return folder


def write_set(folder: Path, meta: dict[str, Any], splits: dict[str, list[dict[str, Any]]]) -> None:
    folder.mkdir()
    common = {"name": folder.name, "license": "CC0 1.0", "attribution": "made up", "languages": ["en", "zh", "it"]}
    (folder / "meta.json").write_text(json.dumps({**common, **meta}, ensure_ascii=False), encoding="utf-8")
    for split, rows in splits.items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(lines, encoding="utf-8")


@pytest.fixture(scope="session")
def bundled_recipe() -> Recipe:
    """The recipe of the model that ships."""
    return load_recipe(RECIPE)


@pytest.fixture(scope="session")
def sources() -> dict[str, Source]:
    """One source for each view."""
    return {
        "choice": Source("intents", "choice", 4),
        "labels": Source("emotions", "choice", 2, names={"joy": ["happy", "happiness"]}),
        "area": Source("intents", "area", 1, areas={"alarms": ["alarm"], "music": ["music"], "weather": ["weather"]}),
        "sentiment": Source("emotions", "sentiment", 1, polarity=POLARITY),
        "upset": Source("emotions", "upset", 1),
        "score": Source("stars", "score", 1),
        "language": Source("intents", "language", 1, names=LANGUAGES),
        "answer_kind": Source("intents", "answer_kind", 1),
        "pair": Source("pairs", "pair", 1),
        "open": Source("open", "open", 1),
        "parallel": Source("intents", "parallel", 1),
    }


@pytest.fixture(scope="session")
def make_recipe(bundled_recipe: Recipe, sources: dict[str, Source]) -> Callable[..., Recipe]:
    """A recipe over the made-up sets, with the wordings of the shipped one; keywords change its fields."""

    def make(**changes: Any) -> Recipe:
        training = Training(
            steps=4,
            states_per_step=8,
            learning_rate=1e-3,
            state_tokens=40,
            pass_tokens=400,
            batch_tokens=2000,
            checkpoint_every=2,
            evaluate_every=2,
            threads=1,
            bf16=False,
        )
        defaults = {"name": "tiny", "sources": list(sources.values()), "wordings": bundled_recipe.wordings, "seed": 11}
        return Recipe(**{**defaults, "training": training, **changes})

    return make
