import pytest

from services.common.errors import InvalidArgumentError
from services.knowledge.domain.ingest.policy import (
    DEFAULT_MAX_TOKENS,
    DEFAULT_OVERLAP_TOKENS,
    ChunkPolicy,
)


class TestChunkPolicy:
    def test_defaults(self) -> None:
        assert ChunkPolicy() == ChunkPolicy(DEFAULT_MAX_TOKENS, DEFAULT_OVERLAP_TOKENS)

    @pytest.mark.parametrize(("max_tokens", "overlap"), [(1, 0), (3, 1), (256, 127), (8192, 4095)])
    def test_bounds_hold(self, max_tokens: int, overlap: int) -> None:
        assert ChunkPolicy(max_tokens, overlap).overlap_tokens == overlap

    @pytest.mark.parametrize(
        ("max_tokens", "overlap", "field"),
        [
            (0, 0, "chunking.max_tokens"),
            (-5, 0, "chunking.max_tokens"),
            (10, -1, "chunking.overlap_tokens"),
            (10, 5, "chunking.overlap_tokens"),
            (10, 20, "chunking.overlap_tokens"),
        ],
    )
    def test_beyond_them_is_refused_by_field(
        self, max_tokens: int, overlap: int, field: str
    ) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            ChunkPolicy(max_tokens, overlap)

        assert [field] == [violation.field for violation in caught.value.violations]
