"""The part of YAML that means the same to everyone. Imported only when YAML is read."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml


class PlainLoader(yaml.SafeLoader):
    """YAML with keys that are text and without what surprises: aliases, repeated keys, ``no`` for false, dates."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (as in the base class)

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse aliases: a few of them can stand for gigabytes."""
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            problem = f"the alias *{event.anchor} is not taken: write it out"
            raise yaml.constructor.ConstructorError(problem=problem, problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping whose keys are text as written."""
        found: dict[Hashable, Any] = {}
        for key, value in node.value:
            problem = ""
            if not isinstance(key, yaml.ScalarNode):
                problem = "a key must be text"
            elif key.value in found:
                problem = f"the key {key.value!r} stands twice"
            if problem:
                raise yaml.constructor.ConstructorError(problem=problem, problem_mark=key.start_mark)
            found[key.value] = self.construct_object(value, deep=deep)
        return found


def _resolve(kind: str, pattern: str, first: str) -> None:
    PlainLoader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(pattern), list(first))


_resolve("null", r"^(?:~|null|)$", "~n")
PlainLoader.yaml_implicit_resolvers[""] = list(PlainLoader.yaml_implicit_resolvers["n"])  # a value left empty
_resolve("bool", r"^(?:true|false)$", "tf")
_resolve("int", r"^[-+]?(?:0|[1-9][0-9]*)$", "-+0123456789")
_resolve("float", r"^[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)$", "-+0123456789")
