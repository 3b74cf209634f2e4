"""The part of YAML that means the same to everyone, read and written. Imported only when YAML is."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from julia1.content import shown


class PlainLoader(yaml.SafeLoader):
    """YAML with keys that are text and without what surprises: aliases, repeated keys, ``no`` for false, dates."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (as in the base class)

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse aliases: a few of them can stand for gigabytes."""
        if self.check_event(yaml.AliasEvent):
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            problem = f"the alias *{shown(event.anchor)[1:-1]} is not taken: write it out"
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
                problem = f"the key {shown(key.value)} stands twice"
            if problem:
                raise yaml.constructor.ConstructorError(problem=problem, problem_mark=key.start_mark)
            found[key.value] = self.construct_object(value, deep=deep)
        return found


class PlainDumper(yaml.SafeDumper):
    """Quotes a text that ``PlainLoader``, or a reader of YAML 1.1, would take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write everything out: aliases are not read."""
        return True


def plain_yaml(data: Any) -> str:
    """Plain data as YAML that ``PlainLoader`` reads back as it was."""
    return str(yaml.dump(data, Dumper=PlainDumper, sort_keys=False, allow_unicode=True, width=120))


def _resolve(kind: str, pattern: str, first: list[str]) -> None:
    """Give values that match ``pattern``, and begin as told, a type."""
    for side in (PlainLoader, PlainDumper):
        side.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"^(?:{pattern})$"), first)


_DIGITS = list("-+0123456789")
_resolve("null", r"~|null|", ["~", "n", ""])  # "" is a value left empty
_resolve("bool", r"true|false", ["t", "f"])
_resolve("int", r"[-+]?(?:0|[1-9][0-9]*)", _DIGITS)
_resolve("float", r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)", _DIGITS)
