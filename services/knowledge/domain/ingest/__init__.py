"""From uploaded bytes to pieces that can be embedded: a line of pure stages, one module each.

    decode       bytes and a declared charset -> text, or an error that names the byte
    normalise    one kind of line end, no character that a store refuses
    front_matter a YAML block at the very start -> metadata
    parse        Markdown -> flat top-level blocks with their first and last source lines
    sections     blocks -> sections with heading path and verbatim body
    chunk        sections -> pieces within the embedding model's token budget
    pipeline     the whole line: `prepare`, then `chunk_document`

Nothing here does I/O, keeps state between calls or depends on what another thread is parsing.
"""
