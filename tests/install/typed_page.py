"""A page of docs/ whose code blocks are typed into one shell, and what each of them printed."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_steward.sandbox.processes import ProcessGroup

#: A heading of a step, or a block of code.
_PARTS = re.compile(r"^## ([^\n]+)$|^```(bash|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Seconds between two calls of what is done beside the shell.
_EVERY_S = 0.2
#: What differs from one run to the next: a word with a digit, or a path.
_VARYING = re.compile(r"\S*[0-9/]\S*")


@dataclass(frozen=True)
class Block:
    """What the page types, the lines that it shows as the answer, and the heading of its step."""

    typed: str
    shown: tuple[str, ...] = ()
    step: str = ""


def read_blocks(page: Path) -> list[Block]:
    """Return the page's blocks in order. A block of text belongs to the block of commands before it."""
    blocks: list[Block] = []
    step = ""
    for heading, kind, text in _PARTS.findall(page.read_text()):
        if heading:
            step = heading
        elif kind == "bash":
            blocks.append(Block(text, step=step))
        else:
            blocks[-1] = replace(blocks[-1], shown=tuple(text.splitlines()))
    return blocks


@dataclass(frozen=True)
class TypedBlock:
    """A block that was typed: what it printed, and the seconds that it took."""

    block: Block
    printed: str
    seconds: float


@dataclass(frozen=True)
class TypedPage:
    """A page that was typed to its end. `failed` are the commands with another exit code than 0, with it."""

    blocks: tuple[TypedBlock, ...]
    failed: tuple[str, ...]

    def printed_by(self, command: str) -> str:
        """Return what the first block with that command printed."""
        return next(each.printed for each in self.blocks if command in each.block.typed)


def type_at_once(block: Block) -> bool:
    """Do nothing beside the shell, and let the block be typed."""
    del block  # for those that look at something before they type it
    return True


def type_page(
    page: Path,
    folder: Path,
    environment: Mapping[str, str],
    *,
    within_s: float,
    beside: Callable[[Block], bool] = type_at_once,
) -> TypedPage:
    """Type the page in a new shell in `folder`. Raises AssertionError if that does not end in time.

    `beside` is what the person does beside the shell: it is called again and again with the block that comes next or
    runs, which is typed once the answer was True. All processes that the shell starts have ended afterwards.
    """
    blocks, notes = read_blocks(page), folder / "notes"
    notes.mkdir()
    script = folder / "page.sh"
    script.write_text(_script(blocks, folder))
    group = ProcessGroup(f"typed:{folder}")
    deadline_s = time.monotonic() + within_s
    shell = group.spawn(["bash", str(script)], env={**environment, "NOTES": str(notes)}, log=folder / "shell.log")
    try:
        for number, block in enumerate(blocks):
            while not (notes / f"{number}.end").exists():
                ended = shell.poll() is not None and not (notes / f"{number}.end").exists()
                assert not ended, f"The shell ended early. {_last_words(notes)}"
                late = time.monotonic() > deadline_s
                assert not late, f"{page.name} did not end within {within_s:.0f} s. {_last_words(notes)}"
                if beside(block):
                    (notes / f"{number}.go").touch()
                time.sleep(_EVERY_S)
    finally:
        group.end()
    failed = notes / "failed"
    return TypedPage(
        tuple(_typed_block(block, notes, number) for number, block in enumerate(blocks)),
        tuple(failed.read_text().splitlines()) if failed.exists() else (),
    )


def missing_lines(printed: str, shown: tuple[str, ...]) -> list[str]:
    """Return the lines of `shown` that were not printed, in their order; words that vary may differ."""
    lines = iter(printed.splitlines())
    return [line for line in shown if line.strip() and not any(_pattern(line).fullmatch(each) for each in lines)]


def _pattern(line: str) -> re.Pattern[str]:
    words = [r"\S+" if _VARYING.fullmatch(word) else re.escape(word) for word in line.split()]
    return re.compile(r"\s*" + r"\s+".join(words) + r"\s*")


def _script(blocks: list[Block], folder: Path) -> str:
    lines = [f"cd {shlex.quote(str(folder))}", """trap 'echo "$? $BASH_COMMAND" >> "$NOTES/failed"' ERR"""]
    for number, block in enumerate(blocks):
        lines += [
            f'until [ -e "$NOTES/{number}.go" ]; do sleep {_EVERY_S}; done',
            f'date +%s.%N > "$NOTES/{number}.begin"',
            f'exec > "$NOTES/{number}.out" 2>&1',
            block.typed,
            # Renamed, so that whoever sees the file reads all of it.
            f'date +%s.%N > "$NOTES/{number}.ending"; mv "$NOTES/{number}.ending" "$NOTES/{number}.end"',
        ]
    return "\n".join([*lines, ""])


def _typed_block(block: Block, notes: Path, number: int) -> TypedBlock:
    began_s, ended_s = (float((notes / f"{number}.{each}").read_text()) for each in ("begin", "end"))
    return TypedBlock(block, (notes / f"{number}.out").read_text(), ended_s - began_s)


def _last_words(notes: Path) -> str:
    newest = max(notes.glob("*.out"), key=lambda path: int(path.stem), default=None)
    said = "" if newest is None else newest.read_text()[-2000:]
    failed = notes / "failed"
    return f"Last: {said} Failed: {failed.read_text() if failed.exists() else 'nothing'}"
