"""From an uploaded document to searchable chunks.

The stages, in the order in which a document passes through them:

    run          leads a claimed document through all that follow
    cutting      one call from bytes to pieces, made in a process of its own; `pipeline` inside it
    media_type   declared type and file name -> Markdown or plain text, and a charset
    decode       bytes and charset -> text, or an error that names the byte
    normalise    LF as the only line end, no character that a store refuses
    front_matter a YAML block at the very start -> metadata
    parse, plain Markdown or plain text -> top-level blocks with their first and last source lines
    sections     blocks -> sections with heading path and verbatim body
    chunk        sections -> pieces within the embedding model's token budget
    batching     pieces -> batches that one call may carry
    embed        batches -> vectors, none for a text whose vector is known

What Markdown means is in `tokens`, `paragraphs`, `containers`, `tables`, `links`, `inline` and
`syntax`; how a section is divided in `packing`, `parts`, `boundaries`, `overlap` and `meter`.

From `media_type` to `batching` everything is pure: no I/O, and no state between calls. What claims
a document and writes the result is the service's worker.
"""
