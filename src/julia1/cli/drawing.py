"""Draws answers: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from julia1.answers import (
    Answer,
    ChoiceAnswer,
    LabelsAnswer,
    MatchAnswer,
    ScoreAnswer,
    TagsAnswer,
    ValueAnswer,
    YesNoAnswer,
)
from julia1.cli.printing import one_line
from julia1.questions import Question, instruction_text

MOST_SHOWN = 10
_BAR_WIDTH = 30


@dataclass(frozen=True)
class Picture:
    """One answer, ready to be drawn.

    Attributes:
        name: of the question.
        instructions: what was asked.
        result: the answer in a few words.
        confidence: from 0 to 1; ``None`` for a number.
        shares: options with their probabilities, in the order to show.
        hidden: how many options are left out.
        abstained: whether the answer is only a best guess.
    """

    name: str
    instructions: str
    result: str
    confidence: float | None
    shares: Sequence[tuple[str, float]]
    hidden: int
    abstained: bool


def picture(name: str, question: Question | None, answer: Answer) -> Picture:
    """What to draw of an answer: the likeliest options first, but levels and spans in their own order."""
    if isinstance(answer, ChoiceAnswer):
        result, shares = answer.choice, list(answer.probabilities.items())
    elif isinstance(answer, MatchAnswer):
        result, shares = f"{answer.probability:.0%} match", [("match", answer.probability)]
    elif isinstance(answer, YesNoAnswer):
        result, shares = ("yes" if answer.yes else "no"), [("yes", answer.probability), ("no", 1 - answer.probability)]
    elif isinstance(answer, LabelsAnswer):
        result, shares = ", ".join(answer.labels) or "none", list(answer.probabilities.items())
    elif isinstance(answer, TagsAnswer):
        result = f"{len(answer.spans)} {'span' if len(answer.spans) == 1 else 'spans'}"
        shares = [(f"{span.label}: {span.text} ({span.start}-{span.end})", span.probability) for span in answer.spans]
    elif isinstance(answer, ValueAnswer):
        result = f"{answer.value:.4g}, give or take {answer.deviation:.2g}"
        return Picture(one_line(name), _asked(question), result, None, [], 0, False)
    else:
        result = f"{answer.score:.2f} of {len(answer.legend) - 1}, most likely {answer.legend[answer.level]}"
        texts = [f"{level} {text}" for level, text in enumerate(answer.legend)]
        shares = list(zip(texts, answer.probabilities, strict=True))
    kept = sorted(range(len(shares)), key=lambda index: -shares[index][1])[:MOST_SHOWN]
    if isinstance(answer, (ScoreAnswer, TagsAnswer)):
        kept.sort()
    return Picture(
        one_line(name),
        _asked(question),
        one_line(result),
        answer.confidence,
        [(one_line(shares[index][0]), shares[index][1]) for index in kept],
        len(shares) - len(kept),
        answer.abstained,
    )


def _asked(question: Question | None) -> str:
    return "" if question is None else one_line(instruction_text(question))


def draw(questions: Mapping[str, Question], answers: Mapping[str, Answer], stream: TextIO) -> None:
    """Write every answer to ``stream``, and whether the whole state was read."""
    pictures = [picture(name, questions.get(name), answer) for name, answer in answers.items()]
    reading = next(iter(answers.values())).reading
    cut = ""
    if reading.truncated:
        cut = f"read {reading.tokens_read:,} of {reading.tokens:,} tokens: the end of the text was left out"
    if stream.isatty():
        _bars(pictures, cut, stream)
    else:
        stream.writelines(f"{line}\n" for line in plain_lines(pictures, cut))


def plain_lines(pictures: Sequence[Picture], cut: str = "") -> list[str]:
    """The answers without bars and colours."""
    lines = []
    for item in pictures:
        abstained = "  abstained" if item.abstained else ""
        sure = "" if item.confidence is None else f"  (confidence {item.confidence:.2f})"
        lines.append(f"{item.name}: {item.result}{sure}{abstained}")
        if item.instructions:
            lines.append(f"  {item.instructions}")
        lines.extend(f"  {share:6.1%}  {text}" for text, share in item.shares)
        if item.hidden:
            lines.append(f"  … {item.hidden:,} more")
    return [*lines, cut] if cut else lines


def _bars(pictures: Sequence[Picture], cut: str, stream: TextIO) -> None:
    from rich.console import Console
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    for item in pictures:
        console.print(Text.assemble((item.name, "bold cyan"), "  ", (item.instructions, "dim")))
        console.print(
            Text.assemble("  ", (item.result, "bold yellow" if item.abstained else "bold green"))
            + Text("" if item.confidence is None else f"  confidence {item.confidence:.2f}", "dim")
        )
        if item.abstained:
            console.print(Text("  abstained: the confidence is under the threshold, this is a best guess", "yellow"))
        table = Table.grid(padding=(0, 1))
        table.add_column(width=1)
        table.add_column(overflow="ellipsis", no_wrap=True, max_width=max(12, console.width - _BAR_WIDTH - 14))
        table.add_column(width=_BAR_WIDTH)
        table.add_column(justify="right")
        for text, share in item.shares:
            bar = ProgressBar(total=1, completed=share, width=_BAR_WIDTH, finished_style="bar.complete")
            table.add_row("", Text(text), bar, f"{share:.1%}")
        console.print(table)
        if item.hidden:
            console.print(Text(f"  … {item.hidden:,} more", "dim"))
        console.print()
    if cut:
        console.print(Text(cut, "yellow"))
