"""The text of docs/reference/cli.md: `python -m tests.cli_page > docs/reference/cli.md` writes it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence

from kafka_steward.cli import declare_commands
from kafka_steward.cli.declarations import ActionCommand, Arg, GroupCommand

_HEAD = """# Verbs and options

What each verb of `kafka-steward` prints by `--help`, less its examples.
[How to](../how-to.md#act-at-a-terminal) has the exit codes. In brackets are options of several verbs,
which stand here; a verb's own stand below it. Every verb takes (make-archive and prepare-spark no cluster):

"""
_LOOK = "\n{} also take:\n\n"
_SEVERAL = "\nSeveral verbs take:\n\n"
#: The options that all verbs take; those that only look take the next two as well.
_COMMON = ("--cluster", "-o", "-v")
_DIRECT = ("--bootstrap-server", "--command-config")


def page() -> str:
    """Return the page, made of the definitions that argparse gets."""
    sections = list(_sections("", declare_commands().subcommands))
    counted = Counter(_item(arg) for section in sections for arg in section)
    shared = sorted(item for item, verbs in counted.items() if verbs > 1)
    return "".join([*_head(sections), _SEVERAL, *shared, *(section.text({*shared}) for section in sections)])


def _head(sections: Sequence[_Section]) -> Iterator[str]:
    args = {arg.flags[0]: arg for section in sections for command in section.commands for arg in _shown(command)}
    look = [each.name for each in sections if any(arg.flags[0] in _DIRECT for arg in _shown(each.commands[0]))]
    yield _HEAD
    yield from (_item(args[flag]) for flag in _COMMON)
    yield _LOOK.format(", ".join(f"`{name}`" for name in look))
    yield from (_item(args[flag]) for flag in _DIRECT)


class _Section:
    """One verb; or several, which differ in the first sentence of their help and in some of their options."""

    def __init__(self, name: str, commands: Sequence[ActionCommand]) -> None:
        self.name = name
        self.commands = commands

    def __iter__(self) -> Iterator[Arg]:
        args = (arg for command in self.commands for arg in _own(command))
        yield from {_item(arg): arg for arg in args}.values()

    def text(self, shared: set[str]) -> str:
        """Return the section. `shared` are the items that stand at the head of the page."""
        first = self.commands[0]
        items = [self._item_with_its_verbs(arg) for arg in self if _item(arg) not in shared]
        usage = [arg for arg in _own(first) if _needed(arg) or _item(arg) in shared]
        one = f"{_usage(self.name, usage)}\n\n" * bool(usage) + f"{_told(first)}\n"
        told = self._several() if len(self.commands) > 1 else one
        return f"\n## {self.name}\n\n{told}" + ("\n" + "".join(items) if items else "")

    def _several(self) -> str:
        lines = []
        for command in self.commands:
            usage = _usage(f"{self.name} {command.name}", list(filter(_needed, _own(command))))
            lines.append(f"- {usage}: {_escaped(_paragraphs(command)[0])}\n")
        return f"{''.join(lines)}\n{_escaped(_paragraphs(self.commands[0])[1])}\n"

    def _item_with_its_verbs(self, arg: Arg) -> str:
        item = _item(arg)
        having = [command.name for command in self.commands if item in map(_item, _own(command))]
        everywhere = len(having) == len(self.commands)
        return item if everywhere else item.replace("`: ", f"` ({', '.join(having)}): ", 1)


def _sections(prefix: str, commands: Sequence[ActionCommand | GroupCommand]) -> Iterator[_Section]:
    for command in sorted(commands, key=lambda each: each.name):
        name = f"{prefix}{command.name}"
        if isinstance(command, ActionCommand):
            yield _Section(name, [command])
            continue
        verbs = [each for each in command.subcommands if isinstance(each, ActionCommand)]
        if len(verbs) > 1 and len({_paragraphs(each)[1] for each in verbs}) == 1:
            yield _Section(name, verbs)
        else:
            yield from _sections(f"{name} ", command.subcommands)


def _shown(command: ActionCommand) -> list[Arg]:
    return [arg for arg in command.args if arg.options.get("help") != argparse.SUPPRESS]


def _own(command: ActionCommand) -> list[Arg]:
    return [arg for arg in _shown(command) if arg.flags[0] not in {*_COMMON, *_DIRECT}]


def _told(command: ActionCommand) -> str:
    return _escaped(command.description or command.help)


def _paragraphs(command: ActionCommand) -> tuple[str, str]:
    first, _, rest = (command.description or command.help).partition("\n\n")
    return first, rest


def _usage(name: str, args: Sequence[Arg]) -> str:
    return f"`{' '.join([name, *map(_as_typed, args)])}`"


def _as_typed(arg: Arg) -> str:
    named = arg.flags[0].startswith("-")
    text = f"{arg.flags[-1]} {_value(arg)}".strip() if named else _value(arg)
    return text if _needed(arg) else f"[{text}]"


def _needed(arg: Arg) -> bool:
    named = arg.flags[0].startswith("-")
    return bool(arg.options.get("required")) if named else arg.options.get("nargs") != "?"


def _item(arg: Arg) -> str:
    named = arg.flags[0].startswith("-")
    text = f"{', '.join(arg.flags)} {_value(arg)}".strip() if named else _value(arg)
    return f"- `{text}`: {_escaped(arg.options['help'])}\n"


def _value(arg: Arg) -> str:
    kwargs = arg.options
    if "action" in kwargs and kwargs["action"] != "append":
        return ""
    chosen = kwargs.get("metavar") or "|".join(kwargs.get("choices") or ()) or kwargs.get("dest")
    return str(chosen or arg.flags[0].lstrip("-").upper())


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;")


if __name__ == "__main__":
    print(page(), end="")
