"""Token estimates are near, and rather too high than too low."""

import pytest

from services.knowledge.domain.ingest.token_estimate import estimate_tokens

# Texts with what the SentencePiece model of the bundled embedding model counts.
COUNTED = [
    ("The service keeps documents, cuts them into chunks and finds the ones that answer.", 19),
    ("知识服务保存文档，将其切分为片段，并找出能够回答问题的片段。", 24),
    ("Сервис хранит документы и находит в них ответы на вопросы.", 13),
    ("このサービスは文書を保存し、質問に答える部分を見つけます。", 17),
    ("def estimate(text: str) -> int:\n    return -(-(9 * len(text)) // 32)\n", 26),
    ("| id | name | size |\n| --- | --- | --- |\n| 1 | a.md | 2048 |\n", 36),
]


class TestEstimateTokens:
    @pytest.mark.parametrize(("text", "counted"), COUNTED)
    def test_is_near_the_true_count(self, text: str, counted: int) -> None:
        assert 0.85 * counted <= estimate_tokens(text) <= 2.5 * counted

    def test_nothing_costs_nothing_and_anything_something(self) -> None:
        assert estimate_tokens("") == 0
        assert estimate_tokens("a") == 1

    def test_more_text_costs_no_less(self) -> None:
        text = "Ein Satz. 一句话。 1, 2, 3!"

        costs = [estimate_tokens(text[:end]) for end in range(len(text))]

        assert sorted(costs) == costs
