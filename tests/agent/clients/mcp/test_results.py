import base64

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from services.agent.clients.mcp.results import MAX_RESULT_BYTES, rendered

BLOB = base64.b64encode(b"12345").decode()


def said(*texts: str, **more: object) -> CallToolResult:
    content = [TextContent(type="text", text=text) for text in texts]
    return CallToolResult.model_validate({"content": content, **more}, by_name=True)


class TestRendered:
    def test_texts_stand_one_after_the_other(self) -> None:
        result = rendered(said("a", "b\0"), "notes")

        assert (result.text, result.error) == ("a\n\nb\ufffd", None)

    def test_nothing_is_said_to_be_nothing(self) -> None:
        assert "nothing" in rendered(said(), "notes").text

    def test_an_error_stays_one(self) -> None:
        result = rendered(said("disk full", is_error=True), "notes")

        assert (result.text, result.error) == ("Error: disk full", "failed")

    def test_both_are_quotations_of_the_server(self) -> None:
        for result in (rendered(said("a"), "notes"), rendered(said("b", is_error=True), "notes")):
            assert result.source == "the MCP server notes"

    def test_structured_content_is_told_once(self) -> None:
        value = {"count": 2}

        def shown(*texts: str) -> str:
            return rendered(said(*texts, structured_content=value), "notes").text

        assert shown('{"count":2}') == '{"count":2}'
        assert shown("Two.") == 'Two.\n\n{"count": 2}'
        assert shown() == '{"count": 2}'

    def test_what_is_no_text_is_named(self) -> None:
        content: list[ContentBlock] = [
            ImageContent(type="image", data=BLOB, mime_type="image/png"),
            AudioContent(type="audio", data=BLOB, mime_type="audio/wav"),
            ResourceLink(type="resource_link", name="a", uri="file:///a", mime_type="text/x"),
            EmbeddedResource(
                type="resource",
                resource=BlobResourceContents(uri="file:///b", blob=BLOB, mime_type="x/y"),
            ),
            EmbeddedResource(
                type="resource", resource=TextResourceContents(uri="file:///c", text="Words.")
            ),
        ]

        text = rendered(CallToolResult(content=content), "notes").text

        assert text.split("\n\n") == [
            "[image: image/png, 5 bytes, not shown]",
            "[audio: audio/wav, 5 bytes, not shown]",
            "[resource: file:///a, text/x]",
            "[resource: file:///b, x/y, 5 bytes, not shown]",
            "[resource: file:///c]\nWords.",
        ]
        assert BLOB not in text

    def test_it_is_cut_between_characters(self) -> None:
        text = rendered(said("ä" * MAX_RESULT_BYTES), "notes").text

        assert MAX_RESULT_BYTES - 4 < len(text.encode()) <= MAX_RESULT_BYTES
        assert text.endswith(f"the tool gave {2 * MAX_RESULT_BYTES} bytes.]")
