"""A tiny model made on the spot: tokenizers, a random encoder, and a bundle with its fp32 and int8 variants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from julia1 import YesNo
from julia1.bundle import Bundle, BundleWriter, EncodingSettings, FileEntry, Manifest, Variant
from julia1.runtime.cpu import probe
from julia1.runtime.decider import Decider, load
from julia1.runtime.variants import missing_needs
from julia1.text.options import Limits, OptionsEncoding
from julia1.text.tokenizer import TextTokenizer

if TYPE_CHECKING:
    from julia1.model import OptionModel

# Examples are the same in every run, so that a red run is red again; no deadline, for machines under load.
settings.register_profile(
    "julia1",
    deadline=None,
    max_examples=40,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("julia1")


@pytest.fixture(scope="session", autouse=True)
def own_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A registry of the tests' own: none may write to the user's."""
    folder = tmp_path_factory.mktemp("registry")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JULIA1_REGISTRY", str(folder))
        yield folder


LIMITS = Limits(state_tokens=48, question_tokens=24, option_tokens=48, pass_tokens=120)
VOCABULARY = 448
"""Rows of the embedding; both tokenizers have fewer pieces."""

_ENGLISH = """
a about account agent angry app bad bank billing book calm card charged charges cheap city complaint does delivery
error flight food for furious good great help hotel how i in is it kind late like lost love music need no none not of
one or order other package password pay play please price red refund refunds sad seat shipping song sport team the this
time to today topic travel tuesday twice upset urgent very want was weather what where which wo world writer yes you
"""
_GERMAN = "der die das ist wo mein paket bitte karte geld zurück schlecht"
WORDS, GERMAN = _ENGLISH.split(), _GERMAN.split()
CHINESE = "我你他的是不了在有这个上们来到时大地为子中说生想国年着就那和要她出也得里后自以会家可下而过天去能对小多"


@pytest.fixture(scope="session")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Unigram ``tokenizer.json`` with special tokens named as in XLM-R: <s>, <pad>, </s>, <unk>, <mask>."""
    pieces = ["▁", *_characters(), *CHINESE, *(f"▁{word}" for word in (*WORDS, *GERMAN)), "ing", "ed", "er", "s▁"]
    scored = [
        (piece, -10.0 + 0.5 * min(len(piece), 12) - 0.001 * rank) for rank, piece in enumerate(dict.fromkeys(pieces))
    ]
    specials = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    # as in XLM-R, the special tokens are pieces of the model too, so a text that spells one is met by the model itself
    tokenizer = Tokenizer(models.Unigram([*specials, *scored, ("<mask>", 0.0)], 3, False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(
        [AddedToken(name, special=True) for name in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return _saved(tokenizer, tmp_path_factory.mktemp("unigram"))


@pytest.fixture(scope="session")
def brackets_tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A WordPiece ``tokenizer.json`` with [PAD], [UNK], [CLS], [SEP], [MASK].

    It splits at blanks only, so that a text which spells ``[MASK]`` finds that piece in the vocabulary.
    """
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    characters = _characters()
    pieces = [*specials, *characters, *(f"##{c}" for c in characters), *WORDS, *GERMAN]
    numbered = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(numbered, unk_token="[UNK]", max_input_chars_per_word=200))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in specials])
    return _saved(tokenizer, tmp_path_factory.mktemp("wordpiece"))


@pytest.fixture(scope="session")
def tokenizer(tokenizer_file: Path) -> TextTokenizer:
    return TextTokenizer.from_file(tokenizer_file)


@pytest.fixture(scope="session", params=["angles", "brackets"])
def any_tokenizer(
    request: pytest.FixtureRequest, tokenizer: TextTokenizer, brackets_tokenizer_file: Path
) -> TextTokenizer:
    """Each of the two tokenizers in turn."""
    return tokenizer if request.param == "angles" else TextTokenizer.from_file(brackets_tokenizer_file)


@pytest.fixture(scope="session")
def encoding(tokenizer: TextTokenizer) -> OptionsEncoding:
    """The encoding of the tiny bundle."""
    return OptionsEncoding(tokenizer, LIMITS)


@dataclass(frozen=True)
class Exported:
    """The tiny model in every form.

    Attributes:
        model: as read back from ``weights``.
        weights: the shared low-bit file.
        graphs: graph files by precision, beside ``weights``.
    """

    model: OptionModel
    weights: Path
    graphs: dict[str, Path]


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory, encoding: OptionsEncoding) -> Exported:
    """Two layers, hidden width 64, four heads, random weights large enough for answers to differ."""
    torch = pytest.importorskip("torch", reason="PyTorch makes the tiny model; bring it with the extra train")
    import onnx

    from julia1.export import SharedWeights, input_ranges, option_graph
    from julia1.model import OptionModel, load_weights, new_encoder, round_weights, save_weights

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.manual_seed(20261130)
        model = OptionModel(new_encoder(encoder_config()))
        with torch.no_grad():
            model.head.score.weight.mul_(6)
        rows = [row for text in made_up_texts(12) for row in encoding.encode(text, {"q": YesNo("Is it late?")})[0]]
        ranges = input_ranges(model.eval(), [encoding.collate([row]).feeds() for row in rows])
        round_weights(model, ranges)
        folder = tmp_path_factory.mktemp("exported")
        save_weights(model, folder / "weights.safetensors", ranges)
        stored = load_weights(folder / "weights.safetensors")
    finally:
        torch.set_num_threads(threads)
    shared = SharedWeights(folder / "weights.safetensors")
    graphs = {}
    for precision in ("fp32", "int8"):
        graphs[precision] = folder / f"model-{precision}.onnx"
        onnx.save_model(option_graph(shared, precision), graphs[precision])
    return Exported(stored, folder / "weights.safetensors", graphs)


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory, exported: Exported, tokenizer_file: Path) -> Path:
    """A bundle of the tiny model with its Unigram tokenizer."""
    return _written(tmp_path_factory.mktemp("tiny") / "tiny", exported, tokenizer_file).folder


@pytest.fixture(scope="session")
def brackets_bundle(
    tmp_path_factory: pytest.TempPathFactory, exported: Exported, brackets_tokenizer_file: Path
) -> Path:
    """The same model with the WordPiece tokenizer."""
    return _written(tmp_path_factory.mktemp("brackets") / "brackets", exported, brackets_tokenizer_file).folder


@pytest.fixture(scope="session")
def decider_fp32(tiny_bundle: Path) -> Decider:
    return load(tiny_bundle, variant="fp32", threads=1, warm_up=False)


@pytest.fixture(scope="session")
def decider_int8(tiny_bundle: Path) -> Decider:
    missing = missing_needs(Bundle.open(tiny_bundle).variant("int8"), probe())
    if missing:
        pytest.skip(f"int8 cannot run here: {missing}")
    return load(tiny_bundle, variant="int8", threads=1, warm_up=False)


@pytest.fixture(scope="session", params=["fp32", "int8"])
def decider(request: pytest.FixtureRequest) -> Decider:
    """The decider of each variant in turn."""
    found: Decider = request.getfixturevalue(f"decider_{request.param}")
    return found


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Sixty made-up states of mixed length, some longer than the model reads."""
    return made_up_texts(60)


def made_up_texts(number: int, seed: int = 7) -> list[str]:
    random = np.random.default_rng(seed)
    words: Sequence[str] = (*WORDS, *GERMAN, "好看", "Tuesday,", "42", "naïve")
    return [" ".join(random.choice(words, random.integers(1, 70 if i % 7 == 0 else 20))) for i in range(number)]


def encoder_config(**changes: Any) -> dict[str, Any]:
    """A BERT config of two layers without dropout."""
    return {
        "model_type": "bert",
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "max_position_embeddings": 128,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.1,
        **changes,
    }


def _characters() -> list[str]:
    return [chr(c) for c in range(33, 127)] + list("äöüßéï。，？")


def _saved(tokenizer: Tokenizer, folder: Path) -> Path:
    assert tokenizer.get_vocab_size() <= VOCABULARY
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def _written(target: Path, exported: Exported, tokenizer_file: Path) -> Bundle:
    with BundleWriter(target) as writer:
        weights = writer.add(exported.weights, "weights.safetensors")

        def variant(precision: str, requires: dict[str, tuple[str, ...]]) -> Variant:
            graph: FileEntry = writer.add(exported.graphs[precision], f"model-{precision}.onnx")
            return Variant(precision, "onnxruntime", precision, (graph, weights), requires)

        manifest = Manifest(
            name="tiny",
            version="1",
            kind="open",
            encoding=EncodingSettings(
                "options", LIMITS.state_tokens, LIMITS.question_tokens, LIMITS.option_tokens, LIMITS.pass_tokens
            ),
            tokenizer=writer.add(tokenizer_file, "tokenizer.json"),
            calibration={},
            variants=(variant("int8", {"x86_64": ("vnni",), "aarch64": ()}), variant("fp32", {})),
            checkpoint=(weights,),
        )
        return writer.finish(manifest)
