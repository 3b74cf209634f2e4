"""The bundle: one folder, or one zip of it, with a model and all it needs. Nothing in it is executed."""

from julia1.bundle.card import render_card
from julia1.bundle.encoding import EncodingSettings
from julia1.bundle.manifest import Calibration, FileEntry, Manifest, Variant, read_manifest
from julia1.bundle.places import find_bundle
from julia1.bundle.reader import Bundle, FileCheck, verify_bundle
from julia1.bundle.registry import Registry
from julia1.bundle.writer import BundleWriter
from julia1.bundle.zip import unzip_bundle, zip_bundle

__all__ = [
    "Bundle",
    "BundleWriter",
    "Calibration",
    "EncodingSettings",
    "FileCheck",
    "FileEntry",
    "Manifest",
    "Registry",
    "Variant",
    "find_bundle",
    "read_manifest",
    "render_card",
    "unzip_bundle",
    "verify_bundle",
    "zip_bundle",
]
