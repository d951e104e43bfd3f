"""What a document is cut into."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a section, to be embedded, stored and shown.

    `text` is what a reader sees: source text, complete with what a part cut out of the middle needs
    to be read, the head of its table or the fences of its code. `own_text` is the part of it that
    no other piece has: the own texts of a section's pieces are its body in order, but for the white
    space between them.

    Attributes:
        heading_path: the visible texts of the headings above, outermost first.
        text: the source text with what is repeated around it.
        embed_text: what the model is given.
        start_line: the source line on which the own text begins, from 1; the heading's for a piece
            that holds nothing but its heading.
        end_line: the source line on which it ends.
        section_ordinal: the place of its section in the document, from 0.
        piece_ordinal: its place in the document, from 0.
        token_count: what `embed_text` costs.
        head_chars: how much of the text's start is repeated: a table's header and delimiter rows, a
            fence's opening line, or a heading that is a piece by itself.
        overlap_chars: how much after that is the end of the piece before.
        tail_chars: how much of the text's end is a repeated closing fence.
    """

    heading_path: tuple[str, ...]
    text: str
    embed_text: str
    start_line: int
    end_line: int
    section_ordinal: int
    piece_ordinal: int
    token_count: int
    head_chars: int = 0
    overlap_chars: int = 0
    tail_chars: int = 0

    def numbered(self, ordinal: int) -> "Piece":
        """The piece with its place in the document."""
        return replace(self, piece_ordinal=ordinal)

    @property
    def own_text(self) -> str:
        """The text without anything that is repeated from elsewhere."""
        return self.text[self.head_chars + self.overlap_chars : len(self.text) - self.tail_chars]
