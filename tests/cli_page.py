"""The text of docs/reference/cli.md: `python -m tests.cli_page > docs/reference/cli.md` writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kafka_steward.cli import declare_commands
from kafka_steward.cli.declarations import ActionCommand, Arg, GroupCommand

_HEAD = """# Verbs and options

What `airflow kafka-steward --help` and each verb's `--help` print. How the verbs go together, with a session and the
exit codes, is in [the command line](../command-line.md).

Every verb takes `--cluster CONN_ID` (default: `kafka_steward_default`), `--output table|json|csv` and `--verbose`.
`doctor`, `health`, `partitions`, `plan` and `status` also take `--bootstrap-server HOST:PORT`, with `--command-config
FILE.properties`, in place of a connection: `kafka-steward`, which has the same verbs, then needs no Airflow.
"""
#: The options that the head describes.
_SHARED = frozenset({"--cluster", "--bootstrap-server", "--command-config", "-o", "-v"})


def page() -> str:
    """Return the page, made of the definitions that argparse gets."""
    return _HEAD + "".join(_sections("", declare_commands().subcommands))


def _sections(prefix: str, commands: object) -> Iterator[str]:
    assert isinstance(commands, tuple | list)
    for command in sorted(commands, key=lambda each: each.name):
        name = f"{prefix}{command.name}"
        if isinstance(command, GroupCommand):
            yield from _sections(f"{name} ", command.subcommands)
        else:
            yield "\n".join(_section(name, command))


def _section(name: str, command: ActionCommand) -> Iterator[str]:
    yield f"\n## {name}\n"
    yield f"{_escaped(command.description or command.help)}\n"
    args = [arg for arg in command.args if arg.flags[0] not in _SHARED]
    if args:
        yield "| | |\n|---|---|"
        yield from (f"| {_names(arg)} | {_escaped(arg.options.get('help', ''))} |" for arg in args)
        yield ""
    examples = re.findall(r"^  (airflow .*)$", command.epilog or "", re.MULTILINE)
    yield "\n".join(["```", *examples, "```", ""])


def _names(arg: Arg) -> str:
    kwargs = arg.options
    takes = kwargs.get("metavar") or "\\|".join(kwargs.get("choices") or ()) or kwargs.get("dest") or ""
    if not arg.flags[0].startswith("-"):
        return f"`{kwargs.get('metavar') or arg.flags[0].upper()}`"
    value = "" if "action" in kwargs and kwargs["action"] != "append" else takes or arg.flags[0].lstrip("-").upper()
    return f"`{', '.join(arg.flags)}{' ' if value else ''}{value}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    print(page(), end="")
