"""Pages that are typed: which blocks they have, and what a test of one notices."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import tutorial
from tests.install.typed_page import Block, TypedBlock, TypedPage, missing_lines, read_blocks, type_page

PAGE = """\
# A page

```bash
export WORD=one
false
```

```bash
echo "$WORD 17 of /tmp/x"
```

```text
one 23 of /a/b
```
"""


def page(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "page.md"
    path.write_text(text)
    return path


@pytest.mark.process
def test_blocks_share_a_shell_and_each_answer_is_kept(tmp_path: Path) -> None:
    typed = type_page(page(tmp_path, PAGE), tmp_path, {"PATH": "/usr/bin:/bin"}, within_s=60)
    assert typed.failed == ("1 false",)
    assert [each.printed for each in typed.blocks] == ["", "one 17 of /tmp/x\n"]
    assert missing_lines(typed.blocks[1].printed, typed.blocks[1].block.shown) == []


@pytest.mark.process
def test_without_an_earlier_block_a_later_one_prints_something_else(tmp_path: Path) -> None:
    without = page(tmp_path, PAGE.replace("export WORD=one\n", ""))
    (_, second) = type_page(without, tmp_path, {"PATH": "/usr/bin:/bin"}, within_s=60).blocks
    assert missing_lines(second.printed, second.block.shown) == ["one 23 of /a/b"]


@pytest.mark.process
def test_a_block_is_typed_once_what_is_done_beside_the_shell_allows_it(tmp_path: Path) -> None:
    asked: list[str] = []

    def at_the_tenth_look(block: Block) -> bool:
        asked.append(block.typed)
        return "echo" not in block.typed or sum("echo" in each for each in asked) >= 10

    typed = type_page(page(tmp_path, PAGE), tmp_path, {"PATH": "/usr/bin:/bin"}, within_s=60, beside=at_the_tenth_look)
    assert typed.blocks[1].printed == "one 17 of /tmp/x\n"
    assert sum("echo" in each for each in asked) >= 10
    # The time of a block is the shell's alone: nine pauses between looks take longer than this.
    assert typed.blocks[1].seconds < 1.5


@pytest.mark.process
def test_a_page_that_waits_for_ever_is_ended(tmp_path: Path) -> None:
    waiting = page(tmp_path, "```bash\nuntil false; do sleep 0.1; done\n```\n")
    with pytest.raises(AssertionError, match="did not end within 1 s"):
        type_page(waiting, tmp_path, {"PATH": "/usr/bin:/bin"}, within_s=1)


def test_a_line_is_missing_if_a_word_differs_that_is_no_number() -> None:
    assert missing_lines("ok  watch  A watch is alive: 3 s ago.", ("ok  watch  A watch is alive: 9 s ago.",)) == []
    assert missing_lines("fault  watch  None.", ("ok  watch  None.",)) == ["ok  watch  None."]


def test_each_block_has_the_heading_of_its_step(tmp_path: Path) -> None:
    text = "```bash\na\n```\n## 1. One\n```bash\n## no heading\n```\n```bash\nb\n```\n```text\nB\n```\n## 2. Two\n"
    blocks = read_blocks(page(tmp_path, text))
    assert [(each.typed, each.step) for each in blocks] == [
        ("a\n", ""),
        ("## no heading\n", "1. One"),
        ("b\n", "1. One"),
    ]
    assert blocks[-1].shown == ("B",)


def test_the_table_has_a_row_for_each_step_and_one_for_all() -> None:
    blocks = [Block("a", step="1. One"), Block("b", step="1. One"), Block("c", step="2. Two")]
    typed = TypedPage(tuple(TypedBlock(each, "", 60.0) for each in blocks), ())
    assert tutorial.rows(typed) == [["1. One", "2", "2.0"], ["2. Two", "1", "1.0"], ["in all", "3", "3.0"]]


def test_what_an_environment_takes_on_disk_counts_each_file_once(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "module.py").write_bytes(bytes(3_000_000))
    (tmp_path / "lib64").symlink_to("lib")
    (tmp_path / "link.py").symlink_to("lib/module.py")
    assert tutorial.megabytes(tmp_path) == pytest.approx(3.0, abs=0.01)
