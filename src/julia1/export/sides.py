"""The two sides of a diagnosis: bundles, Hugging Face encoder folders and exports, opened alike.

BUNDLE             the variant that this machine would run; a folder, a zip, or NAME@VERSION of the registry
BUNDLE#VARIANT     that variant
BUNDLE#torch       the checkpoint in PyTorch
FOLDER             a Hugging Face encoder with its tokenizer.json, or a folder that ``julia1 export`` wrote
FILE.onnx, .pt2    a file of such a folder, with config.json and tokenizer.json beside it
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from julia1.bundle import Bundle, EncodingSettings
from julia1.bundle._fields import Place
from julia1.bundle.heads import FeatureSpec, HeadSpec
from julia1.bundle.manifest import MANIFEST_FILE
from julia1.bundle.places import find_bundle
from julia1.errors import InputError
from julia1.export.probes import GraphProbe, ModuleProbe, Probe, ProgramProbe
from julia1.export.running import Arrays, ModuleScorer, load_program
from julia1.export.standalone import EXPORT_KEY, EXPORT_VERSION, FILES, TOKENIZER_FILE, weight_file
from julia1.model.backbone import backbone_config, load_encoder
from julia1.model.eager import CONFIG_FILE, load_eager
from julia1.model.weights import load_fixed, load_weights
from julia1.runtime.cpu import probe as probe_cpu
from julia1.runtime.fixed import ATTENTION_MASK, CATEGORIES, INPUT_IDS, NUMBERS
from julia1.runtime.scorer import OptionScorer
from julia1.runtime.variants import choose_variant
from julia1.text.options import PADDING, TRUNK, Limits, OptionsEncoding, Row
from julia1.text.states import IntArray, pad_rows
from julia1.text.tokenizer import TextTokenizer

TORCH = "torch"
MOST_TOKENS = 512
"""Tokens of a text that are compared at most, where an encoder reads more."""


@dataclass(frozen=True)
class Side:
    """A model to be compared.

    Attributes:
        label: what it is called.
        kind: ``fixed``, ``open`` or ``encoder``.
        precision: what its linear layers are said to be multiplied in.
        tokenizer: its own.
        encoding: how it reads.
        heads, features: of a model with fixed heads.
        probe: the model.
    """

    label: str
    kind: str
    precision: str
    tokenizer: TextTokenizer
    encoding: EncodingSettings
    heads: tuple[HeadSpec, ...]
    features: FeatureSpec
    probe: Probe

    @property
    def most_tokens(self) -> int:
        """Tokens of the longest row that it reads."""
        return self.encoding.pass_tokens if self.kind == "open" else self.encoding.state_tokens

    def feeds(self, rows: Sequence[Sequence[int]]) -> tuple[Arrays, IntArray]:
        """Padded inputs for framed rows of ids, and their mask ``[rows, tokens]``."""
        ids, mask = pad_rows(rows, self.tokenizer.pad)
        if self.kind == "open":
            inside = mask == 1
            places = np.where(inside, np.arange(ids.shape[1]), 0)
            branches = np.where(inside, TRUNK, PADDING)
            markers = np.zeros((len(ids), 1), np.int64)
            names = {INPUT_IDS: ids, "position_ids": places, "branches": branches, "leaves": np.zeros_like(ids)}
            return {**names, "markers": markers}, mask
        feeds: dict[str, npt.NDArray[Any]] = {INPUT_IDS: ids, ATTENTION_MASK: mask}
        if self.features:
            feeds[NUMBERS] = np.full((len(ids), len(self.features.numbers)), np.nan, np.float32)
            feeds[CATEGORIES] = np.zeros((len(ids), len(self.features.categories)), np.int64)
        return feeds, mask

    def options(self) -> OptionsEncoding:
        """The encoding of a model for open decisions."""
        own = self.encoding
        limits = Limits(own.state_tokens, own.question_tokens, own.option_tokens, own.pass_tokens)
        return OptionsEncoding(self.tokenizer, limits)

    def logits(self, rows: Sequence[Row]) -> npt.NDArray[np.float32]:
        """Logits of rows of a model for open decisions, ``[rows, options]``."""
        if isinstance(self.probe, GraphProbe):
            return OptionScorer(self.probe, self.tokenizer.pad, 0).scores(rows)
        assert isinstance(self.probe, (ModuleProbe, ProgramProbe))
        return ModuleScorer(self.probe.call, self.options()).scores(rows)


def open_side(place: str, threads: int) -> Side:
    """Open what a place names; see the module.

    Raises:
        InputError: nothing is there that can be compared.
        BundleError: a bundle or export that is damaged.
        EngineError: a graph or variant that cannot run here.
    """
    path, variant = Path(place), ""
    if not path.exists():
        before, mark, after = place.rpartition("#")
        variant = after if mark else ""
        path = find_bundle(before if mark else place)
    if not path.exists():
        raise InputError(
            f"there is nothing at {str(path)!r}: name a bundle (NAME@VERSION too), a model folder, or a .onnx "
            "or .pt2 file"
        )
    exported = path if path.is_dir() else path.parent
    if path.suffix in (".onnx", ".pt2") or (path.is_dir() and EXPORT_KEY in _config(path)):
        _refuse_variant(place, variant)
        return _exported_side(place, exported, path if path.is_file() else None, threads)
    if path.is_dir() and not (path / MANIFEST_FILE).is_file() and (path / CONFIG_FILE).is_file():
        _refuse_variant(place, variant)
        return _encoder_side(place, path)
    return _bundle_side(place, Bundle.open(path), variant, threads)


def _bundle_side(place: str, bundle: Bundle, name: str, threads: int) -> Side:
    manifest = bundle.manifest
    probe: Probe
    if name == TORCH:
        weights = weight_file(bundle)
        model = load_fixed(weights) if manifest.kind == "fixed" else load_weights(weights)
        probe, precision = ModuleProbe(model, manifest.heads), "fp32"
    else:
        variant, _ = choose_variant(bundle, probe_cpu(), name or None)
        bundle.check_variant(variant)
        probe = GraphProbe(bundle.path(variant.files[0]), manifest.heads, threads)
        name, precision = variant.name, variant.precision
    tokenizer = TextTokenizer.from_file(bundle.path(manifest.tokenizer))
    label = place if place.endswith(f"#{name}") else f"{place}#{name}"
    return Side(label, manifest.kind, precision, tokenizer, manifest.encoding, manifest.heads, manifest.features, probe)


def _encoder_side(place: str, folder: Path) -> Side:
    config = backbone_config(folder)
    probe = ModuleProbe(load_encoder(folder))
    most = min(MOST_TOKENS, int(config.get("max_position_embeddings") or MOST_TOKENS))
    tokenizer = _tokenizer(folder)
    return Side(place, "encoder", "fp32", tokenizer, EncodingSettings("fixed", most), (), FeatureSpec(), probe)


def _exported_side(place: str, folder: Path, file: Path | None, threads: int) -> Side:
    config = _config(folder)
    if config.get(EXPORT_KEY) != EXPORT_VERSION:
        raise InputError(
            f"{place}: no {CONFIG_FILE} of julia1 export lies beside it: name the folder as it was written"
        )
    at = Place(str(folder / CONFIG_FILE))
    encoding = EncodingSettings.from_dict(config.get("encoding"), at.key("encoding"))
    heads = tuple(HeadSpec.from_dict(head, at.key("heads")) for head in config.get("heads", ()))
    features = FeatureSpec.from_dict(config.get("features", {}), at.key("features"))
    path = file or folder / FILES.get(str(config.get("format")), "")
    if not path.is_file():
        raise InputError(f"{place}: there is no {path.name} of the format {config.get('format')!r}: export it again")
    probe: Probe
    if path.suffix == ".onnx":
        probe = GraphProbe(path, heads, threads)
    elif path.suffix == ".pt2":
        probe = ProgramProbe(load_program(path), heads)
    else:
        probe = ModuleProbe(load_eager(folder), heads)
    kind, precision = str(config.get("kind")), str(config.get("precision"))
    return Side(place, kind, precision, _tokenizer(folder), encoding, heads, features, probe)


def _config(folder: Path) -> dict[str, Any]:
    """What ``config.json`` of a folder says, nothing where there is none."""
    try:
        found = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _tokenizer(folder: Path) -> TextTokenizer:
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        raise InputError(f"{folder} has no {TOKENIZER_FILE}: put the one of its model there")
    return TextTokenizer.from_file(path)


def _refuse_variant(place: str, variant: str) -> None:
    if variant:
        raise InputError(f"{place}: only a bundle has variants, leave #{variant} out")
