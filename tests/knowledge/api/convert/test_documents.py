"""Documents between wire and domain."""

from dataclasses import replace

import pytest
from chatmind.knowledge.v1 import document_pb2
from chatmind.knowledge.v1 import knowledge_service_pb2 as pb
from google.protobuf.struct_pb2 import Struct

from services.common.errors import InvalidArgumentError
from services.common.paging import Page
from services.knowledge.api.convert.documents import (
    from_cut,
    from_document,
    to_cut_request,
    to_upload,
)
from services.knowledge.domain.ingest.cutting import cut
from services.knowledge.domain.models import DocumentError, DocumentState, FailedChunk
from tests.contracts.knowledge_stores import ALICE, memory_stores

PAGE = Page()
BASE = "01973f6c-0000-7000-8000-00000000abcd"


class TestToUpload:
    @pytest.mark.parametrize(("size", "fits"), [(65_528, True), (65_529, False)])
    def test_metadata_is_bounded_as_json(self, size: int, fits: bool) -> None:
        metadata = Struct()
        metadata.update({"k": "x" * size})
        request = pb.CreateDocumentRequest(
            knowledge_base_id=BASE, display_name="a", metadata=metadata
        )

        if fits:
            assert to_upload(request).metadata == {"k": "x" * size}
        else:
            with pytest.raises(InvalidArgumentError):
                to_upload(request)

    def test_the_hash_is_of_the_content(self) -> None:
        request = pb.CreateDocumentRequest(knowledge_base_id=BASE, display_name="a")

        empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        assert empty == to_upload(request).content_hash


class TestFromDocument:
    async def test_a_failure_is_shown_with_its_pieces(self) -> None:
        stores = memory_stores()
        document = await stores.document(await stores.base())
        error = DocumentError("CHUNK_NOT_EMBEDDED", "why", (FailedChunk(("A", "B"), 1, 2),))

        shown = from_document(replace(document, state=DocumentState.FAILED, error=error))

        assert shown.state == document_pb2.Document.STATE_FAILED
        chunk = document_pb2.FailedChunk(heading_path=["A", "B"], start_line=1, end_line=2)
        assert shown.error == document_pb2.DocumentError(
            reason="CHUNK_NOT_EMBEDDED", message="why", chunks=[chunk]
        )

    async def test_without_one_there_is_no_error(self) -> None:
        stores = memory_stores()
        base = await stores.base()
        await stores.document(base)
        (document,) = await stores.documents.list_documents(base.id, viewer=ALICE, page=PAGE)

        assert not from_document(document).HasField("error")


class TestFromCut:
    def test_heavy_pieces_are_fewer(self) -> None:
        content = b"text"
        whole = cut(to_cut_request(pb.PreviewChunksRequest(content=content)))

        piece = replace(whole.pieces[0], heading_path=("h" * 20_000,))
        shown = from_cut(replace(whole, pieces=(piece,) * 1200))

        assert shown.chunk_count == 1200
        assert 300 < len(shown.chunks) < 420
        assert shown.ByteSize() < 8 * 2**20 + 30_000
