"""The fixed words of the views: question words, answer kinds, sentiment and anger scales in English and Chinese."""

from __future__ import annotations

import re

Target = list[float]

QUESTION_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "number",
        re.compile(
            r"\bhow (many|much|old|far|tall|big|long|fast|often|high|hot|cold)\b"
            r"|多少|几(个|点|岁|度|次)|多(大|高|远|久|长)",
            re.I,
        ),
    ),
    ("person", re.compile(r"\b(who|whose|whom)\b|谁|哪位", re.I)),
    ("place", re.compile(r"\bwhere\b|\b(what|which) (city|country|state|place)\b|哪里|哪儿|在哪|什么地方", re.I)),
    ("time", re.compile(r"\bwhen\b|\bwhat (time|day|date|year)\b|什么时候|何时|哪天|几点", re.I)),
    ("reason", re.compile(r"\bwhy\b|\bhow come\b|为什么|为何", re.I)),
    ("manner", re.compile(r"^(so )?how (do|can|to|would|should|could|does|did) |怎么(做|办|样|才)|如何", re.I)),
    (
        "definition",
        re.compile(
            r"\bwhat (does|do) .+ mean\b|\bdefin(e|ition)\b|\bwhat('s| is) (a|an|the meaning)\b|是什么意思|什么是", re.I
        ),
    ),
    ("abbreviation", re.compile(r"\bstand for\b|\babbreviat|\bacronym\b|缩写", re.I)),
)
ANSWER_KINDS: dict[str, list[tuple[str, str | None]]] = {
    "number": [
        ("number", "a number, amount or measure"),
        ("numeric value", None),
        ("quantity", "how many or how much"),
        ("数字", None),
    ],
    "person": [("person", "a human being or a group of people"), ("human", None), ("人物", None)],
    "place": [("location", "a place, city or country"), ("place", None), ("地点", None)],
    "time": [("time", "a date or a time"), ("date or time", None), ("时间", None)],
    "reason": [("reason", "why something happens"), ("cause", None), ("原因", None)],
    "manner": [("method", "how something is done"), ("way to do it", None), ("方法", None)],
    "definition": [("description", "a definition or description"), ("definition", None), ("描述", None)],
    "abbreviation": [("abbreviation", "what letters stand for"), ("缩写", None)],
    "entity": [("entity", "a thing, product, animal or work"), ("thing", None), ("事物", None)],
}

SENTIMENT_EN: tuple[dict[str, str], ...] = (
    {"positive": "positive", "negative": "negative", "neutral": "neutral"},
    {"positive": "Positive", "negative": "Negative", "neutral": "Neutral"},
    {"positive": "good", "negative": "bad", "neutral": "neither good nor bad"},
    {"positive": "favourable", "negative": "unfavourable", "neutral": "balanced"},
    {"positive": "satisfied", "negative": "dissatisfied", "neutral": "indifferent"},
)
SENTIMENT_ZH = {"positive": "正面", "negative": "负面", "neutral": "中性"}
LevelTable = dict[int, tuple[list[str], dict[str, Target]]]
_TARGETS: dict[int, dict[str, Target]] = {
    2: {"negative": [1, 0], "positive": [0, 1]},
    3: {"negative": [1, 0, 0], "neutral": [0, 1, 0], "positive": [0, 0, 1]},
    5: {"negative": [0.5, 0.5, 0, 0, 0], "neutral": [0, 0, 1, 0, 0], "positive": [0, 0, 0, 0.5, 0.5]},
}
SENTIMENT_LEVELS_EN: LevelTable = {
    2: (["negative", "positive"], _TARGETS[2]),
    3: (["negative", "neutral", "positive"], _TARGETS[3]),
    5: (["very negative", "negative", "neutral", "positive", "very positive"], _TARGETS[5]),
}
SENTIMENT_LEVELS_ZH: LevelTable = {
    2: (["负面", "正面"], _TARGETS[2]),
    3: (["负面", "中性", "正面"], _TARGETS[3]),
    5: (["非常负面", "负面", "中性", "正面", "非常正面"], _TARGETS[5]),
}
_UPSET_TARGETS: dict[int, dict[str, Target]] = {
    2: {"calm": [1, 0], "upset": [0, 1]},
    3: {"calm": [1, 0, 0], "upset": [0, 0.6, 0.4]},
    4: {"calm": [0.9, 0.1, 0, 0], "upset": [0, 0.3, 0.4, 0.3]},
}
UPSET_EN: LevelTable = {
    2: (["calm", "angry"], _UPSET_TARGETS[2]),
    3: (["calm", "annoyed", "furious"], _UPSET_TARGETS[3]),
    4: (["not upset", "slightly upset", "upset", "very upset"], _UPSET_TARGETS[4]),
}
UPSET_ZH: LevelTable = {
    2: (["平静", "愤怒"], _UPSET_TARGETS[2]),
    3: (["平静", "不满", "愤怒"], _UPSET_TARGETS[3]),
    4: (["不生气", "有点生气", "生气", "非常生气"], _UPSET_TARGETS[4]),
}
