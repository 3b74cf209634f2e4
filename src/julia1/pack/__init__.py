"""A box: one zip with a model and all that runs it, to be unzipped and used where nothing can be installed."""

from julia1.pack.box import Box, pack
from julia1.pack.lock import PLATFORMS, this_platform, this_python

__all__ = ["PLATFORMS", "Box", "pack", "this_platform", "this_python"]
