"""From state and questions to text, and from text to token arrays. Knows no engine and no PyTorch."""
