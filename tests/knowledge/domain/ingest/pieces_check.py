"""What holds for the pieces of any document under any policy."""

from collections.abc import Sequence

import regex

from services.knowledge.domain.ingest.graphemes import MAX_CLUSTER, is_blank
from services.knowledge.domain.ingest.meter import TokenCounter
from services.knowledge.domain.ingest.pieces import Piece
from services.knowledge.domain.ingest.pipeline import PreparedDocument
from services.knowledge.domain.ingest.policy import ChunkPolicy
from services.knowledge.domain.ingest.sections import Section


def characters(text: str) -> int:
    """A tokenizer with a token for each code point."""
    return len(text)


def words(text: str) -> int:
    """A tokenizer with a token for each word and each ideograph."""
    return len(regex.findall(r"\p{Han}|[^\s\p{Han}]+", text))


def quarters(text: str) -> int:
    """A tokenizer with a token for four code points, two of which frame the text."""
    return 2 + -(-len(text) // 4)


def octets(text: str) -> int:
    """A tokenizer with a token for each byte of UTF-8."""
    return len(text.encode())


def check_pieces(
    document: PreparedDocument,
    pieces: Sequence[Piece],
    policy: ChunkPolicy,
    *,
    count_tokens: TokenCounter,
) -> None:
    """Nothing is lost, moved, blank, torn or over the budget."""
    assert list(range(len(pieces))) == [piece.piece_ordinal for piece in pieces]
    ordinals = [piece.section_ordinal for piece in pieces]
    assert sorted(ordinals) == ordinals
    for piece in pieces:
        _check_piece(piece, policy, count_tokens)
    for section in document.sections:
        of_section = [piece for piece in pieces if piece.section_ordinal == section.ordinal]
        assert {piece.heading_path for piece in of_section} <= {section.path}
        _check_section(section, of_section)


def _check_piece(piece: Piece, policy: ChunkPolicy, count_tokens: TokenCounter) -> None:
    assert not is_blank(piece.text)
    assert not is_blank(piece.embed_text)
    assert count_tokens(piece.embed_text) == piece.token_count
    if piece.token_count > policy.max_tokens:
        clusters = regex.findall(r"\X", piece.own_text or piece.text)
        assert len(clusters) == 1, piece
    overlap = piece.text[piece.head_chars : piece.head_chars + piece.overlap_chars]
    assert count_tokens(overlap.rstrip()) <= max(policy.overlap_tokens, count_tokens(""))


def _check_section(section: Section, pieces: Sequence[Piece]) -> None:
    """The own texts are the body in order, cut at borders of characters, lines as told."""
    borders = {0} | {cluster.end() for cluster in regex.finditer(r"\X", section.body)}
    place = 0
    for piece in pieces:
        if not piece.own_text:
            continue
        start = section.body.find(piece.own_text, place)
        end = start + len(piece.own_text)
        assert start >= 0, (section.body, piece)
        assert is_blank(section.body[place:start]), (section.body[place:start], piece)
        assert {start, end} <= borders or len(section.body) > MAX_CLUSTER, piece
        assert section.body_line + section.body.count("\n", 0, start) == piece.start_line
        assert section.body_line + section.body.count("\n", 0, end - 1) == piece.end_line
        place = end
    assert is_blank(section.body[place:]), (section, pieces)
