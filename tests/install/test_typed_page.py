"""Pages that are typed: which blocks they have, and what a test of one notices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.install.environments import ROOT
from tests.install.typed_page import missing_lines, read_blocks, type_page

TUTORIAL = ROOT / "docs" / "start" / "first-heal.md"
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
def test_a_page_that_waits_for_ever_is_ended(tmp_path: Path) -> None:
    waiting = page(tmp_path, "```bash\nuntil false; do sleep 0.1; done\n```\n")
    with pytest.raises(AssertionError, match="did not end within 1 s"):
        type_page(waiting, tmp_path, {"PATH": "/usr/bin:/bin"}, within_s=1)


def test_a_line_is_missing_if_a_word_differs_that_is_no_number() -> None:
    assert missing_lines("ok  watch  A watch is alive: 3 s ago.", ("ok  watch  A watch is alive: 9 s ago.",)) == []
    assert missing_lines("fault  watch  None.", ("ok  watch  None.",)) == ["ok  watch  None."]


def test_the_tutorial_types_each_step() -> None:
    typed = "\n".join(block.typed for block in read_blocks(TUTORIAL))
    steps = (
        "pip install 'airflow-provider-kafka-steward[sandbox]'",
        "airflow providers get airflow-provider-kafka-steward",
        "airflow db migrate",
        "airflow triggerer",
        "python -m kafka_steward.sandbox",
        "airflow connections add kafka_test",
        "airflow kafka-steward doctor --cluster kafka_test",
        "airflow kafka-steward plan drain",
        "airflow dags unpause heal_kafka_test",
        "kill -9",
        "airflow kafka-steward status",
        "grep completed",
        "airflow kafka-steward partitions --under-replicated-partitions",
        "airflow kafka-steward audit",
    )
    places = [typed.find(step) for step in steps]
    assert -1 not in places, steps[places.index(-1)]
    assert places == sorted(places)
