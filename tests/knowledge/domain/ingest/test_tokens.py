import pytest

from services.knowledge.domain.ingest.blocks import BlockKind
from services.knowledge.domain.ingest.tokens import block_tokens
from tests.knowledge.domain.ingest.outlines import blocks

P, F, C, H = BlockKind.PARAGRAPH, BlockKind.FENCE, BlockKind.INDENTED_CODE, BlockKind.HTML
L, Q, R, HEADING = BlockKind.LIST, BlockKind.QUOTE, BlockKind.RULE, BlockKind.HEADING


class TestBlockTokens:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", []),
            ("\n \n\t\n", []),
            ("a\n\n\nb\n", [(P, 1, 1), (P, 4, 4)]),
            ("# h\n## i\ntext", [(HEADING, 1, 1), (HEADING, 2, 2), (P, 3, 3)]),
            ("a\n# h\nb", [(P, 1, 1), (HEADING, 2, 2), (P, 3, 3)]),
            ("```\n# no\n\n```\na", [(F, 1, 4), (P, 5, 5)]),
            ("```\na\n\n\n", [(F, 1, 2)]),
            ("```\n    ```\n```", [(F, 1, 3)]),
            ("  ~~~\na\n ~~~~\nb", [(F, 1, 3), (P, 4, 4)]),
            ("```\n```py\nb", [(F, 1, 3)]),
            ("a\n```\nb", [(P, 1, 1), (F, 2, 3)]),
            ("    a\n\n\n    b\n\nc", [(C, 1, 4), (P, 6, 6)]),
            ("a\n    b", [(P, 1, 2)]),
            ("\ta\n  b", [(C, 1, 1), (P, 2, 2)]),
            ("<div>\n# no\n\n# h", [(H, 1, 2), (HEADING, 4, 4)]),
            ("<!-- a\n\n# no\n--> b\n# h", [(H, 1, 4), (HEADING, 5, 5)]),
            ("<!-- a -->\n# h", [(H, 1, 1), (HEADING, 2, 2)]),
            ("<pre>\n\n# no\n</pre>\n# h", [(H, 1, 4), (HEADING, 5, 5)]),
            ("<b>\n# no\n\n# h", [(H, 1, 2), (HEADING, 4, 4)]),
            ("a\n<b>\n# h", [(P, 1, 2), (HEADING, 3, 3)]),
            ("a\n<div>\nb", [(P, 1, 1), (H, 2, 3)]),
            ("---\na\n\n***", [(R, 1, 1), (P, 2, 2), (R, 4, 4)]),
            ("- a\n\n  b\n\n\n# h", [(L, 1, 3), (HEADING, 6, 6)]),
            ("- a\n- b\n* c", [(L, 1, 2), (L, 3, 3)]),
            ("> a\nb\n\n> c", [(Q, 1, 2), (Q, 4, 4)]),
            ("- a\n> b", [(L, 1, 1), (Q, 2, 2)]),
            ("- # inside\n\n# h", [(L, 1, 1), (HEADING, 3, 3)]),
            ("\u3000\n\xa0\n\x0c", [(P, 1, 3)]),
        ],
    )
    def test_kinds_and_lines(self, text: str, expected: list[tuple[BlockKind, int, int]]) -> None:
        assert expected == blocks(text)

    def test_every_document_has_tokens_of_its_own(self) -> None:
        first, second = block_tokens(set()), block_tokens(set())

        assert not {id(token) for token in first} & {id(token) for token in second}

    def test_some_token_takes_any_line(self) -> None:
        tokens = block_tokens(set())

        for line in ("", "a", "    a", "# a", "```", "<b>", "***", "- a", "> a", "|", "\x00"):
            assert any(token.start(line) for token in tokens)
