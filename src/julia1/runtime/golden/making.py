"""Runs requests through a variant and keeps what matters."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import metadata

import numpy as np

from julia1 import __version__
from julia1.bundle import Bundle
from julia1.errors import EngineError, InputError, TooLongError
from julia1.questions import Question
from julia1.runtime.cpu import probe
from julia1.runtime.decider import Decider, open_plan, token_limits
from julia1.runtime.golden.file import Golden, Identity, Made, Recorded, files_of
from julia1.runtime.golden.graph_outputs import READ_GRAPHS, open_looked_into
from julia1.runtime.golden.recording import Recorder
from julia1.runtime.golden.requests import Request
from julia1.runtime.golden.samples import sample_requests
from julia1.runtime.machine import INSTRUCTIONS
from julia1.runtime.plan import Plan, make_plan
from julia1.runtime.scorer import KEYS, TRUNK_MEAN, VALUES
from julia1.runtime.tuned import engine_version
from julia1.runtime.variants import choose_variant, missing_needs
from julia1.text.options import OptionsEncoding
from julia1.text.tokenizer import TextTokenizer

MOST_REQUESTS = 1000
OPTION_MEMORY, BATCH_TOKENS = 2048, 2048
"""Numbers of its own: they say in which calls of the engine texts are read, and files are to stay good."""
LOOKED_INTO = 24
"""Of so many requests the tensors on the way are kept: more would say no more, and make the file large."""


def make_golden(
    bundle: Bundle,
    variant: str | None = None,
    *,
    engine: str | None = None,
    threads: int | str | None = None,
    requests: Sequence[Request] | None = None,
) -> Golden:
    """Ask a bundle and keep what it computes.

    Args:
        bundle: what is asked.
        variant: only this one; all that run on this machine when ``None``.
        engine, threads: as ``julia1.load`` has them.
        requests: what is asked, ``MOST_REQUESTS`` at most; built-in requests when ``None``.

    Raises:
        InputError: no or too many requests, one that cannot be asked, or no such variant.
        EngineError: no variant, or not the wanted one, runs here, or one gives what is no number.
    """
    names = [variant] if variant is not None else []
    if variant is None:
        names = [one.name for one in bundle.manifest.variants if not missing_needs(one, probe())]
        if not names:
            choose_variant(bundle, probe())  # which says why
    if requests is not None and not 0 < len(requests) <= MOST_REQUESTS:
        raise InputError(f"there are {len(requests):,} requests: give at least one, {MOST_REQUESTS:,} at most")
    asked = _that_fit(bundle) if requests is None else list(requests)
    variants = {}
    for name in names:
        plan = plan_of(bundle, name, engine, threads)
        with recording(bundle, plan) as (decider, recorder):
            made = [made_of(request, decider, recorder, number) for number, request in enumerate(asked)]
        for request, of_one in zip(asked, made, strict=True):
            _require_numbers(name, request, of_one)
        version = engine_version(plan.engine) or "unknown"
        precision, files = plan.variant.precision, files_of(plan.variant)
        variants[name] = Recorded(precision, plan.engine, version, files, tuple(made))
    return Golden(Identity.of(bundle.manifest), environment(), tuple(asked), variants)


def plan_of(bundle: Bundle, variant: str, engine: str | None, threads: int | str | None) -> Plan:
    """How a variant is run, whatever was tuned here; raises ``EngineError`` when it cannot run."""
    plan = make_plan(bundle, probe(), variant=variant, engine=engine, threads=threads, tuned=False)
    return replace(plan, batch_tokens=BATCH_TOKENS)


@contextlib.contextmanager
def recording(bundle: Bundle, plan: Plan) -> Iterator[tuple[Decider, Recorder]]:
    """A decider and what keeps the work of its engine.

    Raises:
        BundleError: a file of the variant is wrong.
        EngineError: it cannot be loaded.
    """
    manifest = bundle.manifest
    tokenizer, engine = open_plan(bundle, plan)
    with contextlib.ExitStack() as stack:
        if manifest.kind == "open":  # whose graph gives keys and values, whatever runs it
            layers = sum(name.startswith("context_keys.") for name in engine.inputs)
            names = [name.format(layer) for layer in range(layers) for name in (KEYS, VALUES)]
            recorder = Recorder(engine, [*names, TRUNK_MEAN])
        elif plan.engine in READ_GRAPHS:
            looked_into, names = stack.enter_context(open_looked_into(bundle, plan))
            recorder = Recorder(engine, names, looked_into)
        else:
            recorder = Recorder(engine, [])
        yield Decider(manifest, tokenizer, recorder, plan, OPTION_MEMORY), recorder


def made_of(request: Request, decider: Decider, recorder: Recorder, number: int) -> Made:
    """What comes of a request, the ``number``-th from 0."""
    said = request.ask(decider)
    passes = recorder.taken()
    if number >= LOOKED_INTO:
        passes = tuple(replace(one, tensors={}) for one in passes)
    return Made(passes, said)


def environment() -> dict[str, str]:
    """This machine and what is installed, in words."""
    cpu = probe()
    features = [name for name in INSTRUCTIONS.get(cpu.architecture, ()) if name in cpu.features]
    return {
        "julia1": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "tokenizers": metadata.version("tokenizers"),
        "system": platform.system() or "unknown",
        "architecture": cpu.architecture or "unknown",
        "cpu": cpu.name or "unknown",
        "features": " ".join(features) or "unknown",
    }


def _that_fit(bundle: Bundle) -> list[Request]:
    """The built-in requests, without questions that are longer than the model reads."""
    manifest = bundle.manifest
    requests = sample_requests(manifest)
    if manifest.kind != "open":
        return requests
    encoding = OptionsEncoding(TextTokenizer.from_file(bundle.path(manifest.tokenizer)), token_limits(manifest))
    found = []
    for request in requests:
        questions = {name: asked for name, asked in request.questions.items() if _fits(encoding, name, asked)}
        if questions:
            found.append(replace(request, questions=questions))
    if not found:
        raise InputError("no built-in question is short enough for this model: give rows and questions of your own")
    return found


def _fits(encoding: OptionsEncoding, name: str, question: Question) -> bool:
    try:
        encoding.question_tokens(name, question)
    except TooLongError:
        return False
    return True


def _require_numbers(variant: str, request: Request, made: Made) -> None:
    for one in made.passes:
        for name, values in {**one.tensors, **one.outputs}.items():
            if not np.isfinite(values).all():
                raise EngineError(
                    f"the variant {variant!r} computes what is no number in {name!r} for the request "
                    f"{request.name!r}: it cannot be what others are measured by"
                )
