"""Where training on own rows starts: the encoder of a bundle, of a Hugging Face folder, or of a model on the hub."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from julia1.bundle import Bundle, find_bundle
from julia1.errors import InputError
from julia1.model.backbone import backbone_config, complete_config, load_encoder, put_pooler
from julia1.model.weights import load_fixed, load_weights, read_weights
from julia1.text.tokenizer import TextTokenizer

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_FILES = ["config.json", "tokenizer.json", "*.safetensors", "*.safetensors.index.json"]
_OLD_FILES = ["pytorch_model*.bin", "pytorch_model.bin.index.json"]


@dataclass(frozen=True)
class Start:
    """An encoder to be loaded, and its tokenizer.

    Attributes:
        name: what a card calls it.
        tokenizer_file: its ``tokenizer.json``.
        config: its Hugging Face config, as ``load`` makes it, defaults included.
        load: makes the encoder, in fp32.
        parent: the bundle that it is of, as NAME@VERSION; '' for another start.
    """

    name: str
    tokenizer_file: Path
    config: dict[str, Any]
    load: Callable[[], nn.Module]
    parent: str = ""

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        """The tokenizer, read once: a search trains from one start many times."""
        return TextTokenizer.from_file(self.tokenizer_file)


def find_start(place: str | Path, registry: Path | None = None) -> Start:
    """A bundle (folder, zip, NAME@VERSION), a Hugging Face model folder, or ``owner/model``, looked for in this order.

    A place that exists is never looked for on the hub. The hub is reached as Hugging Face's library does: HF_HOME,
    HF_HUB_OFFLINE, HF_TOKEN and HF_ENDPOINT are followed, and what is in the cache is not fetched again.

    NAME@VERSION is of the registry in the folder ``registry``, or of the default one.

    Raises:
        InputError: nothing is there, the hub does not give it, or the folder has no tokenizer.
        BundleError: a bundle that cannot be read.
    """
    path = Path(place)
    if path.is_dir() and (path / "config.json").is_file():
        return start_from_folder(path, path.resolve().name)
    if path.exists() or not HUB_ID.fullmatch(str(place)):
        return start_from_bundle(Bundle.open(find_bundle(place, registry)))
    return start_from_folder(fetched(str(place)), str(place))


def start_from_bundle(bundle: Bundle) -> Start:
    """The encoder of a bundle with a checkpoint."""
    for entry in bundle.manifest.checkpoint or ():
        if entry.path.endswith(".safetensors"):
            weights = bundle.path(entry)
            break
    else:
        raise InputError(f"{bundle.source} cannot be trained further: it has no checkpoint")

    def load() -> nn.Module:
        if bundle.manifest.kind == "open":
            return load_weights(weights).encoder
        model = load_fixed(weights)
        if model.pooler is not None:
            put_pooler(model.encoder, model.pooler)
        return model.encoder

    name, version = bundle.manifest.name, bundle.manifest.version
    config = complete_config(read_weights(weights).encoder_config, weights)
    tokenizer = bundle.path(bundle.manifest.tokenizer)
    return Start(f"{name} {version}", tokenizer, config, load, f"{name}@{version}")


def start_from_folder(folder: Path, name: str) -> Start:
    """The encoder of a Hugging Face model folder; nothing is fetched."""
    config = complete_config(backbone_config(folder), folder / "config.json")
    tokenizer = folder / "tokenizer.json"
    if not tokenizer.is_file():
        raise InputError(
            f"{folder} has no tokenizer.json: write it with AutoTokenizer.from_pretrained(...).save_pretrained(...) of "
            "transformers"
        )
    return Start(name, tokenizer, config, lambda: load_encoder(folder))


def fetched(name: str) -> Path:
    """The folder of a hub model's files; raises ``InputError`` when the hub or the cache does not have it."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, allow_patterns=_FILES))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(name, allow_patterns=[*_FILES, *_OLD_FILES]))
    except LocalEntryNotFoundError:
        raise InputError(
            f"{name} is no folder, and the hub cannot be reached to fetch it (it is not in the cache): name a local "
            "folder, or take HF_HUB_OFFLINE away"
        ) from None
    except HfHubHTTPError as error:
        raise InputError(f"{name} is no folder, and the hub does not give it: {str(error).splitlines()[0]}") from None
    except OSError as error:
        raise InputError(f"cannot fetch {name}: {error}") from None
    return folder
