"""What training starts from: bundles, folders, and the hub, which is a server on this machine here."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("huggingface_hub")

from tuning_samples import TOY  # noqa: E402

from julia1 import BundleError, InputError  # noqa: E402
from julia1.model import new_encoder  # noqa: E402
from julia1.train.start import find_start  # noqa: E402

COMMIT = "a" * 40
TOKEN = "hf_stand_in"
CONFIG = {
    "model_type": "bert",
    "vocab_size": 30,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tokenizer_file: Path) -> Path:
    place = tmp_path_factory.mktemp("models") / "small"
    encoder: Any = new_encoder(CONFIG)
    encoder.save_pretrained(place)
    (place / "tokenizer.json").write_bytes(tokenizer_file.read_bytes())
    (place / "README.md").write_text("not needed")
    return place


class Hub(BaseHTTPRequestHandler):
    """The few routes of the hub that a download takes; ``own/private`` wants a token."""

    folder: Path
    asked: list[str]

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        type(self).asked.append(f"{self.command} {path}")
        if "own/private" in path and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.reply(401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "a token is needed"}, b"", body)
        if path.startswith("/api/models/own/"):
            names = sorted(file.name for file in self.folder.iterdir())
            tree = [
                {"type": "file", "path": name, "size": (self.folder / name).stat().st_size, "oid": "0" * 40}
                for name in names
            ]
            info = {"id": "own/small", "sha": COMMIT, "siblings": [{"rfilename": name} for name in names]}
            data = tree if "/tree/" in path else info
            return self.reply(200, {"Content-Type": "application/json"}, json.dumps(data).encode(), body)
        if f"/resolve/{COMMIT}/" in path:
            content = (self.folder / path.rsplit("/", 1)[1]).read_bytes()
            headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
            return self.reply(200, headers, content, body)
        return self.reply(404, {"X-Error-Code": "RepoNotFound"}, b"", body)

    def reply(self, status: int, headers: dict[str, str], content: bytes, body: bool) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def hub(folder: Path) -> Iterator[str]:
    handler = type("Handler", (Hub,), {"folder": folder, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def found(name: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Look for a start in a process of its own: the library reads its variables once."""
    code = (
        "import sys\n"
        "from julia1.errors import InputError\n"
        "from julia1.train.start import find_start\n"
        "try:\n"
        "    start = find_start(sys.argv[1])\n"
        "    print(start.name, start.config['hidden_size'], sum(p.numel() for p in start.load().parameters()))\n"
        "except InputError as error:\n"
        "    sys.exit(f'error: {error}')\n"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    source = str(Path(__file__).resolve().parents[2] / "src")
    return subprocess.run(
        [sys.executable, "-c", code, name],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**environment, "PYTHONPATH": source, "HF_HUB_DISABLE_XET": "1", **variables},
    )


def parameters() -> int:
    return sum(p.numel() for p in new_encoder(CONFIG).parameters())


def test_a_hub_model_is_fetched_once_and_then_found_without_the_hub(hub: str, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    first = found("own/small", tmp_path, HF_ENDPOINT=hub, HF_HOME=home)
    assert first.stdout.split() == ["own/small", "8", str(parameters())], first.stderr
    kept = [path.name for path in (tmp_path / "home").rglob("snapshots/*/*")]
    assert "README.md" not in kept
    assert {"config.json", "tokenizer.json", "model.safetensors"} <= set(kept)
    again = found("own/small", tmp_path, HF_ENDPOINT="http://127.0.0.1:9", HF_HOME=home, HF_HUB_OFFLINE="1")
    assert again.stdout == first.stdout, again.stderr


def test_a_model_that_is_not_there_is_one_clear_error(hub: str, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    missing = found("other/none", tmp_path, HF_ENDPOINT=hub, HF_HOME=home)
    assert "error: other/none is no folder, and the hub does not give it" in missing.stderr
    offline = found("own/small", tmp_path, HF_ENDPOINT=hub, HF_HOME=home, HF_HUB_OFFLINE="1")
    assert "error: own/small is no folder, and the hub cannot be reached" in offline.stderr
    assert not list((tmp_path / "home").rglob("*.safetensors"))


def test_a_private_model_needs_the_token(hub: str, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    refused = found("own/private", tmp_path, HF_ENDPOINT=hub, HF_HOME=home)
    assert refused.stderr.startswith("error: own/private is no folder")
    given = found("own/private", tmp_path, HF_ENDPOINT=hub, HF_HOME=home, HF_TOKEN=TOKEN)
    assert given.stdout.split()[0] == "own/private", given.stderr


def test_a_folder_is_never_looked_for_on_the_hub(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "small").symlink_to(folder)
    there = found("own/small", tmp_path, HF_ENDPOINT="http://127.0.0.1:9", HF_HOME=str(tmp_path / "home"))
    assert there.stdout.split()[1] == "8", there.stderr


def test_a_folder_without_tokenizer_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(InputError, match=r"has no tokenizer\.json"):
        find_start(tmp_path)


def test_what_is_neither_folder_nor_bundle_nor_hub_id_is_named(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="nowhere"):
        find_start(tmp_path / "nowhere" / "at" / "all")


BACKBONES: dict[str, dict[str, Any]] = {
    "modernbert": {
        "intermediate_size": 48,
        "global_attn_every_n_layers": 2,
        "local_attention": 8,
        "pad_token_id": 0,
        "cls_token_id": 1,
        "sep_token_id": 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "xlm-roberta": {"intermediate_size": 48, "pad_token_id": 1},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
}


@pytest.mark.parametrize("kind", BACKBONES)
def test_any_known_encoder_is_trained_and_served(kind: str, tokenizer_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("datasketch")
    from transformers import AutoConfig, AutoModel

    from julia1 import load
    from julia1.train.data.rows import read_rows
    from julia1.train.fit import fit
    from julia1.train.parts import make_parts

    own = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4} if kind != "distilbert" else {}
    config = AutoConfig.for_model(kind, vocab_size=448, max_position_embeddings=64, **own, **BACKBONES[kind])
    torch.manual_seed(1)
    AutoModel.from_config(config).save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_bytes(tokenizer_file.read_bytes())
    rows = [
        {"text": f"{('order', 'music')[i % 2]} number {i} {'please ' * (i % 12)}", "label": ("order", "music")[i % 2]}
        for i in range(120)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = replace(TOY, epochs=10, patience=10, batch_rows=8, max_tokens=40)
    parts = make_parts(read_rows([tmp_path / "rows.jsonl"]), None, None, 1)
    fitted = fit(parts, find_start(tmp_path / "model"), tmp_path / "run", settings, name="own", version="1")
    assert fitted.parity.largest < 1e-4
    assert fitted.bundle.manifest.provenance["base_model"] == "model"
    assert fitted.test["label"]["accuracy"] > 0.9
    decider = load(fitted.bundle.folder, variant="fp32", threads=1)
    texts = [str(row["text"]) for row in rows[:20]]
    assert decider.decide_many(texts) == [decider.decide(text) for text in texts]
    again = find_start(fitted.bundle.folder)
    assert again.config["model_type"] == ("modernbert" if kind == "modernbert" else "bert")
    assert again.config["max_position_embeddings"] >= 40


def test_a_tokenizer_of_another_model_is_named(folder: Path, tmp_path: Path) -> None:
    from julia1.train.data.rows import read_rows
    from julia1.train.fit import fit
    from julia1.train.parts import make_parts
    from julia1.train.recipe import FineTuning

    rows = [{"text": f"{('order', 'music')[i % 2]} {i}", "label": ("order", "music")[i % 2]} for i in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    parts = make_parts(read_rows([tmp_path / "rows.jsonl"]), None, None, 1)
    with pytest.raises(InputError, match="pieces and the encoder 30: they do not belong together"):
        fit(parts, find_start(folder), tmp_path / "run", FineTuning(max_tokens=16), name="own", version="1")
    assert not (tmp_path / "run").exists()


def test_heads_read_the_pooler_of_an_encoder_that_has_one(
    tokenizer_file: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    from transformers import BertConfig, BertModel

    from julia1.train.data.rows import read_rows
    from julia1.train.fit import fit
    from julia1.train.parts import make_parts

    settings = {**CONFIG, "vocab_size": 448, "max_position_embeddings": 64}
    config = BertConfig(**{key: value for key, value in settings.items() if key != "model_type"})
    BertModel(config).save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_bytes(tokenizer_file.read_bytes())
    rows = [{"text": f"{word} {i}", "label": word} for i in range(30) for word in ("food", "music")]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    parts = make_parts(read_rows([tmp_path / "rows.jsonl"]), None, None, 1)
    tuning = replace(TOY, epochs=2, pooling="pooler+mean")
    fitted = fit(parts, find_start(tmp_path / "model"), tmp_path / "run", tuning, name="pooled", version="1")
    assert fitted.parity.largest < 1e-4
    again = fit(parts, find_start(fitted.bundle.folder), tmp_path / "second", tuning, name="pooled", version="2")
    assert again.parity.largest < 1e-4
    with pytest.raises(InputError, match="comes without a pooler: take cls, mean or max"):
        fit(parts, find_start(tiny_bundle), tmp_path / "third", tuning, name="pooled", version="3")
