"""A small handbook whose facts no model can know, and what is asked about them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

DOCUMENTS: Final[Mapping[str, str]] = {
    "backups.md": """\
# Backups

## Retention

Backups of the Lighthouse server are kept for 47 days. After that they are deleted.

## Schedule

A backup of the Lighthouse server is made every night at 03:40.
""",
    "printers.md": """\
# Printers

## Paper jam

When the printer shows the code E72, open the rear flap and pull the paper out downwards.
""",
    "vacation.zh.md": """\
# 休假制度

## 年假

每位员工每年有 17 天年假。申请年假须提前 9 天提交给部门经理。

## 病假

请病假须在当天上午十点以前通知部门经理。
""",
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A question in several wordings, and one that follows it.

    Attributes:
        document: where both answers stand.
        questions: each begins a session of its own.
        fact: stands in the right answer to any of them.
        more: asked next; it cannot be understood without what was said before.
        more_fact: stands in the right answer to that.
    """

    document: str
    questions: Sequence[str]
    fact: str
    more: str
    more_fact: str


TOPICS: Final[Mapping[str, Topic]] = {
    "English": Topic(
        document="backups.md",
        questions=(
            "How many days are backups of the Lighthouse server kept?",
            "For how long do we keep the backups of Lighthouse?",
            "After how many days is a backup of the Lighthouse server deleted?",
        ),
        fact="47",
        more="And at what time of the night is it made?",
        more_fact="3:40",
    ),
    "Chinese": Topic(
        document="vacation.zh.md",
        questions=(
            "员工每年有多少天年假？",
            "我们公司的年假一共有几天？",
            "请问每位员工一年可以休几天年假？",
        ),
        fact="17",
        more="那需要提前几天申请？",
        more_fact="9",
    ),
}
