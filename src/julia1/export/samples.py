"""Real inputs for a comparison, where none are given: short texts in several scripts and of different lengths."""

from __future__ import annotations

from julia1.questions import Choice, Question, Score, YesNo

TEXTS = (
    "I was charged twice for one order and nobody answers my mails.",
    "ok",
    "Where is my parcel? It should have come on Tuesday, and the tracking page has not changed for four days.",
    "Das Zimmer war sauber, aber das Frühstück leider kalt. Ich hätte gerne mein Geld zurück!",
    "我昨天下的订单还没有发货，请帮我查一下。",
    "Bonjour, est-ce que je peux changer la date de mon vol sans payer de frais supplémentaires ?",
    "Vorrei prenotare un tavolo per quattro persone alle 20:30, possibilmente vicino alla finestra.",
    "¿Cuál es el saldo de mi cuenta?",
    "明日の東京の天気はどうですか",
    "Не могу войти в личный кабинет: пишет, что пароль неверный.",
    "أريد إلغاء اشتراكي من فضلك",
    "मेरा फ़ोन चार्ज नहीं हो रहा है",
    "👍 thanks, works now 🎉",
    "INVOICE #2024-0017\ttotal: 1,299.00 EUR\ndue 2024-05-31",
    "The meeting was moved from Monday to Thursday because two of the speakers are ill. Please tell everybody who has "
    "a ticket, refund those who cannot come, and ask the hotel whether the rooms can be kept for the same price. " * 3,
    "x" * 60,
)

QUESTIONS: dict[str, Question] = {
    "team": Choice("Which team handles this?", ["billing: charges and refunds", "shipping", "accounts", "other"]),
    "urgent": YesNo("Does it need an answer today?"),
    "mood": Score("How upset is the writer?", ["calm", "annoyed", "furious"]),
}
"""What a model for open decisions is asked about each text."""
