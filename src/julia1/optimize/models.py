"""The model of an analysis, an ONNX file or a variant of a bundle, and an input to run it on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from julia1.bundle import Bundle
from julia1.bundle.manifest import MANIFEST_FILE
from julia1.bundle.places import find_bundle
from julia1.errors import InputError
from julia1.export.onnx_file import read_model
from julia1.optimize.feeds import bundle_feeds, example_feeds, read_feeds
from julia1.optimize.graph import Arrays, OperatorGraph
from julia1.runtime.cpu import probe
from julia1.runtime.variants import choose_variant


@dataclass(frozen=True)
class Opened:
    """A graph and what it was run on.

    Attributes:
        label: what the model is called.
        file: it was read from.
        graph: its operators, with the shapes of the run.
        feeds: the input of the run.
    """

    label: str
    file: Path
    graph: OperatorGraph
    feeds: Arrays


def open_model(place: str, *, variant: str | None = None, inputs: Path | None = None, tokens: int = 64) -> Opened:
    """Read a model and run it once.

    Args:
        place: an ONNX file, a folder with one, a bundle, or NAME@VERSION of the registry.
        variant: of a bundle; the one for this CPU when ``None``.
        inputs: an ``.npz`` file with a value for each input; made up when ``None``.
        tokens: of the made-up input; of a bundle about as many, as text.

    Raises:
        InputError: there is no such model, or it does not run on the input.
        BundleError: the bundle is damaged.
        EngineError: this CPU runs no variant of it.
    """
    path = Path(place)
    if path.suffix != ".onnx" and (not path.is_dir() or (path / MANIFEST_FILE).is_file()):
        bundle = Bundle.open(find_bundle(place))
        chosen, _ = choose_variant(bundle, probe(), variant)
        file = bundle.path(chosen.files[0])
        feeds = read_feeds(inputs) if inputs else bundle_feeds(bundle, chosen.name, max(1, tokens - 2))
        label = f"{bundle.manifest.name} {bundle.manifest.version}, {chosen.name}"
        return Opened(label, file, OperatorGraph(read_model(file), feeds), feeds)
    if variant is not None:
        raise InputError(f"{place} is no bundle: it has no variant {variant!r}")
    file = path if path.suffix == ".onnx" else _only_onnx(path)
    model = read_model(file)
    feeds = read_feeds(inputs) if inputs else example_feeds(model, 1, tokens)
    return Opened(str(file), file, OperatorGraph(model, feeds), feeds)


def _only_onnx(folder: Path) -> Path:
    found = sorted((*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx")))
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(
            f"{folder} has no ONNX file: write one first, with  julia1 export  for a bundle, with torch.onnx for others"
        )
    raise InputError(f"{folder} has {len(found)} ONNX files: name one of {', '.join(map(str, found[:5]))}")
