"""From state and questions to token arrays. Knows no engine and no PyTorch."""

from julia1.text.options import Encoded, Limits, OptionsEncoding, QuestionTokens, Row
from julia1.text.tokenizer import TextTokenizer

__all__ = ["Encoded", "Limits", "OptionsEncoding", "QuestionTokens", "Row", "TextTokenizer"]
