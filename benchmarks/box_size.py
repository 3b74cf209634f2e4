"""How large the packed box is, for every platform: in the zip and unzipped, and the largest of its parts.

Packs the bundle as ``julia1 pack`` does, the wheels from the package index by pip, into a temporary folder.
"""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import Any

from _common import bundle_path, parser, print_table, run, write_json
from julia1.pack import PLATFORMS, pack

MB = 1e6


def main() -> None:
    made = parser(__doc__, data=False)
    made.add_argument("--python", default="3.11", help="the target's Python (default: %(default)s)")
    args = made.parse_args()
    figures: dict[str, Any] = {}
    rows = []
    with tempfile.TemporaryDirectory(prefix="julia1-box-") as folder:
        for platform in PLATFORMS:
            box = pack(bundle_path(args), Path(folder) / f"{platform}.zip", platform=platform, python=args.python)
            with zipfile.ZipFile(box.path) as archive:
                unzipped = sum(member.file_size for member in archive.infolist())
            parts = {part.name: part.bytes for part in box.parts}
            figures[platform] = {"bytes": box.bytes, "unzipped": unzipped, "parts": parts}
            sizes = [box.bytes, unzipped, *(parts[name] for name in (box.manifest.name, "numpy", "onnxruntime"))]
            rows.append([platform, *(f"{size / MB:.1f}" for size in sizes)])
    print_table(["MB", "zip", "unzipped", "model", "numpy", "onnxruntime"], rows)
    write_json(args, figures)


if __name__ == "__main__":
    run(main)
