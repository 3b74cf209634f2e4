"""``julia1 completion``: print a completion script for a shell, made from the parser itself."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from julia1.cli.flags import Commands, add_json
from julia1.cli.printing import print_json

_INSTALL = """to use it:
  bash   julia1 completion bash > ~/.local/share/bash-completion/completions/julia1
  zsh    julia1 completion zsh > a folder of your $fpath, as _julia1
  fish   julia1 completion fish > ~/.config/fish/completions/julia1.fish
"""


@dataclass(frozen=True)
class Flag:
    """A flag: its names, its help in a few words, whether it takes a value."""

    names: tuple[str, ...]
    help: str
    takes_value: bool


@dataclass(frozen=True)
class Command:
    """What can stand after a command: flags, words (subcommands or fixed values) with their help.

    Attributes:
        path: the words that lead to it; empty for ``julia1`` itself.
    """

    path: tuple[str, ...]
    flags: tuple[Flag, ...]
    words: tuple[tuple[str, str], ...]
    commands: tuple[Command, ...]

    def walk(self) -> Iterator[Command]:
        """Itself and every command below."""
        yield self
        for command in self.commands:
            yield from command.walk()


def describe(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Command:
    """The tree of a parser. The only place that looks into argparse, which has no public way to list its arguments."""
    flags, words, commands = [], [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            words += [(name, helps.get(name, "")) for name in action.choices]
            commands += [describe(child, (*path, name)) for name, child in action.choices.items()]
        elif action.option_strings:
            flags.append(Flag(tuple(action.option_strings), action.help or "", action.nargs != 0))
        elif action.choices:
            words += [(str(choice), "") for choice in action.choices]
    return Command(path, tuple(flags), tuple(words), tuple(commands))


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "completion",
        help="print a shell's completion script",
        description="Print a completion script for a shell, made from the parser itself.",
        epilog=_INSTALL,
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("shell", metavar="SHELL", choices=tuple(SCRIPTS), help=" or ".join(SCRIPTS))
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    from julia1.cli.app import build_parser

    script = SCRIPTS[arguments.shell](describe(build_parser()))
    if arguments.json:
        print_json({"shell": arguments.shell, "script": script})
    else:
        print(script, end="")
    return 0


def bash(tree: Command) -> str:
    """Flags and words; what they do not match, and the value of a flag, is completed as a file name."""
    cases = []
    for command in tree.walk():
        flags = [name for flag in command.flags for name in flag.names]
        valued = [name for flag in command.flags if flag.takes_value for name in flag.names]
        words = [word for word, _ in command.words]
        cases.append(
            f'    "{" ".join(command.path)}") words="{" ".join(words)}" flags="{" ".join(flags)}" '
            f'valued=" {" ".join(valued)} " ;;'
        )
    return f"""# bash completion of julia1, printed by: julia1 completion bash
_julia1() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
  local command="" word words flags valued
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$command/$word" in
      {_descents(tree)}) command="${{command:+$command }}$word" ;;
    esac
  done
  case "$command" in
{chr(10).join(cases)}
  esac
  COMPREPLY=()
  case "$valued" in *" $previous "*) return ;; esac
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$current")) ;;
    *) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
  esac
}}
complete -o default -F _julia1 julia1
"""


def zsh(tree: Command) -> str:
    """As for bash, with the help of each word and flag beside it."""
    cases = []
    for command in tree.walk():
        flags = [_zsh_item(name, flag.help) for flag in command.flags for name in flag.names]
        words = [_zsh_item(word, text) for word, text in command.words]
        valued = [name for flag in command.flags if flag.takes_value for name in flag.names]
        cases.append(
            f"    {_quoted(' '.join(command.path))})\n"
            f"      words_here=({' '.join(words)})\n      flags_here=({' '.join(flags)})\n"
            f"      valued=({' '.join(valued)}) ;;"
        )
    return f"""#compdef julia1
# zsh completion of julia1, printed by: julia1 completion zsh
_julia1() {{
  local command="" word
  local -a words_here flags_here valued
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "$command/$word" in
      {_descents(tree)}) command="${{command:+$command }}$word" ;;
    esac
  done
  case "$command" in
{chr(10).join(cases)}
  esac
  if (( ${{valued[(Ie)${{words[CURRENT-1]}}]}} )); then
    _files
  elif [[ "${{words[CURRENT]}}" == -* ]]; then
    _describe -o flag flags_here
  elif (( $#words_here )); then
    _describe word words_here
  else
    _files
  fi
}}
if [[ "${{funcstack[1]}}" == _julia1 ]]; then _julia1 "$@"; else compdef _julia1 julia1; fi
"""


def fish(tree: Command) -> str:
    """One line a flag or word; fish completes file names where nothing else is told."""
    lines = ["# fish completion of julia1, printed by: julia1 completion fish"]
    for command in tree.walk():
        below = [word for word, _ in command.words]
        conditions = [f"__fish_seen_subcommand_from {word}" for word in command.path]
        if not command.path:
            conditions = ["__fish_use_subcommand"]
        here = _quoted("; and ".join(conditions))
        first = _quoted("; and ".join([*conditions, f"not __fish_seen_subcommand_from {' '.join(below)}"]))
        lines += [f"complete -c julia1 -f -n {first} -a {word} -d {_quoted(text)}" for word, text in command.words]
        for flag in command.flags:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)
            value = " -r" if flag.takes_value else ""
            lines.append(f"complete -c julia1 -n {here} {names}{value} -d {_quoted(flag.help)}")
    return "\n".join(lines) + "\n"


SCRIPTS: dict[str, Callable[[Command], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def _descents(tree: Command) -> str:
    """Shell patterns of each step from a command to one below it."""
    steps = [(" ".join(command.path[:-1]), command.path[-1]) for command in tree.walk() if command.path]
    return "|".join(f'"{above}/{word}"' for above, word in steps)


def _zsh_item(name: str, text: str) -> str:
    return _quoted(f"{name}:{text}" if text else name)


def _quoted(text: str) -> str:
    """In single quotes, for any of the three shells."""
    return "'" + text.replace("\\", "").replace("'", "’") + "'"
