"""Made-up texts of any length, in several scripts, and questions about them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from julia1.content import Content
from julia1.questions import Choice, Question, Score, YesNo

_SENTENCES = {
    "en": "the order was charged twice and nobody answers where is my parcel please refund it today because I need the "
    "invoice for March it works now thanks a lot but login fails with error 403 after update to version 2.1.7",
    "zh": "我 昨天 下的 订单 还没有 发货 请 帮我 查一下 快递 在哪里 退款 什么时候 到账 密码 不对 无法 登录 谢谢 "
    "已经 解决了 发票 金额 错误 客服 一直 不回复",
    "other": "Wo ist mein Paket où est ma commande ¿dónde está mi pedido заказ не пришёл أين طلبي 注文が届きません "
    "मेरा ऑर्डर कहाँ है naïve Zürich",
    "emoji": "👍 😡 🎉 🚚 ❤️ 👩\u200d👩\u200d👧\u200d👦 🇨🇳 🤷🏽\u200d♀️ ok",
}
_WORDS = {script: sentence.split() for script, sentence in _SENTENCES.items()}
_LABELS = (
    "billing",
    "shipping",
    "accounts",
    "refund",
    "login",
    "parcel",
    "invoice",
    "praise",
    "退款",
    "物流",
    "账号",
    "other",
)
_ASKED = ("Which team?", "What is it?", "哪个部门？", "Is it urgent?", "是否紧急？", "How upset?")
LONGEST_WORDS = 4000


def made_up_text(rng: random.Random, words: int) -> str:
    """A text of so many words, in one script or in all."""
    script = rng.choice([*_WORDS, "mixed"])
    known: Sequence[str] = [word for some in _WORDS.values() for word in some] if script == "mixed" else _WORDS[script]
    return ("" if script == "zh" else " ").join(rng.choices(known, k=words))


def made_up_state(rng: random.Random, words: int) -> Content:
    """A text, or one time in six an object around it."""
    text = made_up_text(rng, words)
    if rng.random() < 5 / 6:
        return text
    items = [{"name": rng.choice(_LABELS), "price": round(rng.uniform(1, 500), 2)} for _ in range(rng.randint(0, 3))]
    return {"ticket": {"text": text, "urgent": rng.random() < 0.5, "tries": rng.randint(0, 9)}, "items": items}


def made_up_questions(rng: random.Random, option_words: int, number: int) -> dict[str, Question]:
    """So many questions of all types; options of up to ``option_words`` words, some seen before and some new."""
    found: dict[str, Question] = {}
    for i in range(number):
        asked, kind = rng.choice(_ASKED), rng.choice(("choice", "yesno", "score"))
        if kind == "yesno":
            found[f"yesno{i}"] = YesNo(asked)
        elif kind == "score":
            found[f"score{i}"] = Score(asked, ["calm", "annoyed", "furious"][: rng.randint(2, 3)])
        else:
            options = rng.sample(_LABELS, rng.randint(2, len(_LABELS)))
            described = {name: made_up_text(rng, rng.randint(1, option_words)) for name in options}
            found[f"choice{i}"] = Choice(asked, described if rng.random() < 0.3 else options)
    return found
