"""The service over real gRPC, a real database and a fake embedding service."""

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from chatmind.knowledge.v1 import knowledge_base_pb2, search_pb2
from chatmind.knowledge.v1 import knowledge_service_pb2 as pb
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import ListValue, Struct
from grpc import StatusCode, aio

from services.common.ids import new_id
from services.common.status import failure_of
from tests.knowledge.fake_embedding import DIMENSIONS, MODEL, OTHER_MODEL
from tests.knowledge.rpc import refused
from tests.knowledge.system import INGESTING, PENDING, READY, Caller, System, Team

pytestmark = pytest.mark.asyncio(loop_scope="module")

CASES = Path(__file__).parents[2] / "cases"
TENANT = knowledge_base_pb2.VISIBILITY_TENANT
TEA = "# Tea\n\nBoil the water.\n\n# Sea\n\nHoist the sails.\n\n# Pea\n\nShell and cook.\n"


async def update(caller: Caller, base_id: str, *paths: str, **fields: Any) -> Any:
    """The base with these fields changed."""
    request = pb.UpdateKnowledgeBaseRequest(
        knowledge_base=knowledge_base_pb2.KnowledgeBase(id=base_id, **fields),
        update_mask=FieldMask(paths=paths),
    )
    return (await caller.call("UpdateKnowledgeBase", request)).knowledge_base


class TestCreateKnowledgeBase:
    async def test_fills_in_what_is_not_said(self, alice: Caller) -> None:
        base = await alice.base("notes")

        assert (base.embedding_model, base.embedding_dimensions) == (MODEL, DIMENSIONS)
        assert base.type == knowledge_base_pb2.KnowledgeBase.TYPE_KNOWLEDGE
        assert base.embed_field == knowledge_base_pb2.EMBED_FIELD_TITLE_AND_CONTENT
        assert base.visibility == knowledge_base_pb2.VISIBILITY_PRIVATE
        assert (base.chunking.max_tokens, base.chunking.overlap_tokens) == (256, 0)
        assert (base.owner_user_id, base.document_count, base.chunk_count) == ("alice", 0, 0)
        request = pb.GetKnowledgeBaseRequest(knowledge_base_id=base.id.upper())
        assert base == (await alice.call("GetKnowledgeBase", request)).knowledge_base

    async def test_an_unknown_model_is_told_with_those_that_are_known(self, alice: Caller) -> None:
        with refused(StatusCode.FAILED_PRECONDITION, "UNKNOWN_EMBEDDING_MODEL") as refusal:
            await alice.base(embedding_model="no-such")

        assert {"model": "no-such", "known": f"{MODEL}, {OTHER_MODEL}"} == refusal.told.metadata

    @pytest.mark.parametrize("name", ["", "  "])
    async def test_a_name_is_required(self, alice: Caller, name: str) -> None:
        with refused(StatusCode.INVALID_ARGUMENT, "INVALID_FIELD") as refusal:
            await alice.base(name)

        assert refusal.fields == ["knowledge_base.display_name"]

    @pytest.mark.parametrize(("longest", "overlap"), [(16, 8), (None, 128), (15, 0), (8193, 0)])
    async def test_chunking_has_bounds(
        self, alice: Caller, longest: int | None, overlap: int
    ) -> None:
        chunking = knowledge_base_pb2.Chunking(max_tokens=longest, overlap_tokens=overlap)

        with refused(StatusCode.INVALID_ARGUMENT, "INVALID_FIELD") as refusal:
            await alice.base(chunking=chunking)

        assert refusal.fields[0].startswith("knowledge_base.chunking.")

    async def test_a_request_id_makes_it_safe_to_repeat(
        self, alice: Caller, system: System
    ) -> None:
        base = knowledge_base_pb2.KnowledgeBase(display_name="notes")
        request = pb.CreateKnowledgeBaseRequest(knowledge_base=base, request_id=new_id())
        first = await alice.call("CreateKnowledgeBase", request)
        system.embedding.unavailable = True

        assert first == await alice.call("CreateKnowledgeBase", request)
        request.knowledge_base.display_name = "other"
        with refused(StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED"):
            await alice.call("CreateKnowledgeBase", request)

    async def test_needs_the_embedding_service(self, alice: Caller, system: System) -> None:
        system.embedding.unavailable = True

        with refused(StatusCode.UNAVAILABLE, "EMBEDDING_UNAVAILABLE"):
            await alice.base()


class TestListKnowledgeBases:
    async def test_pages_hold_every_base_once(self, team: Team) -> None:
        created = [(await team.alice.base(f"{i}")).id for i in range(5)]
        created.append((await team.bob.base("shared", visibility=TENANT)).id)
        await team.bob.base("private")

        found, token, pages = [], "", 0
        while token or not pages:
            request = pb.ListKnowledgeBasesRequest(page_size=2, page_token=token)
            page = await team.alice.call("ListKnowledgeBases", request)
            found += [base.id for base in page.knowledge_bases]
            token, pages = page.next_page_token, pages + 1

        assert sorted(created) == found
        assert pages == 3

    async def test_a_token_is_its_lists_and_its_callers_alone(self, team: Team) -> None:
        for i in range(3):
            await team.alice.base(f"{i}")
        request = pb.ListKnowledgeBasesRequest(page_size=1)
        token = (await team.alice.call("ListKnowledgeBases", request)).next_page_token

        for caller, stolen in (
            (team.bob, pb.ListKnowledgeBasesRequest(page_token=token)),
            (team.alice, pb.ListKnowledgeBasesRequest(page_token=token, display_name="0")),
            (team.alice, pb.ListKnowledgeBasesRequest(page_token="x" + token)),
        ):
            with refused(StatusCode.INVALID_ARGUMENT, "INVALID_PAGE_TOKEN"):
                await caller.call("ListKnowledgeBases", stolen)

    async def test_a_name_narrows_it(self, alice: Caller) -> None:
        await alice.base("one")
        wanted = await alice.base("two")

        request = pb.ListKnowledgeBasesRequest(display_name="two")
        found = await alice.call("ListKnowledgeBases", request)

        assert [wanted.id] == [base.id for base in found.knowledge_bases]


class TestUpdateKnowledgeBase:
    async def test_changes_what_the_mask_names(self, alice: Caller) -> None:
        base = await alice.base("notes", description="old")

        changed = await update(
            alice, base.id, "description", "visibility", description="new", visibility=TENANT
        )

        assert (
            changed.display_name,
            changed.description,
            changed.visibility,
        ) == ("notes", "new", TENANT)

    async def test_what_is_immutable_or_unknown_is_refused_all_at_once(self, alice: Caller) -> None:
        base = await alice.base()

        with refused(StatusCode.INVALID_ARGUMENT, "INVALID_FIELD") as refusal:
            await update(alice, base.id, "embedding_model", "nonsense", "description")

        assert refusal.fields == ["update_mask", "update_mask"]

    async def test_an_empty_mask_is_refused(self, alice: Caller) -> None:
        base = await alice.base()

        with refused(StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
            await update(alice, base.id)

    async def test_others_in_the_tenant_may_not(self, team: Team) -> None:
        base = await team.alice.base(visibility=TENANT)

        with refused(StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED"):
            await update(team.bob, base.id, "description", description="bob was here")
        changed = await update(team.admin, base.id, "description", description="by the admin")
        assert changed.description == "by the admin"


class TestDeleteKnowledgeBase:
    async def test_takes_everything_along_and_says_how_much(self, alice: Caller) -> None:
        base = await alice.base()
        document = await alice.ingest(base.id, "a.md", TEA)

        request = pb.DeleteKnowledgeBaseRequest(knowledge_base_id=base.id)
        receipt = (await alice.call("DeleteKnowledgeBase", request)).receipt

        assert (receipt.documents, receipt.chunks) == (1, 3)
        with refused(StatusCode.NOT_FOUND, "NOT_FOUND") as refusal:
            await alice.call("DeleteKnowledgeBase", request)
        assert {"resource": "knowledge_base", "id": base.id} == refusal.told.metadata
        with refused(StatusCode.NOT_FOUND, "NOT_FOUND"):
            await alice.get(document.id)


class TestCreateDocument:
    async def test_returns_at_once_and_ingests_afterwards(
        self, alice: Caller, system: System
    ) -> None:
        base = await alice.base()
        system.embedding.open.clear()

        document = await alice.put(base.id, "dir/a.md", TEA, metadata={"tag": "x"})

        assert (document.state, document.version, document.searchable_version) == (PENDING, 1, 0)
        assert (await alice.until(document.id, INGESTING)).chunks_done == 0
        system.embedding.open.set()
        document = await alice.settled(document.id)
        assert (
            document.state,
            document.chunks_done,
            document.chunks_total,
            document.searchable_version,
        ) == (READY, 3, 3, 1)
        assert (document.title, dict(document.metadata)) == ("Tea", {"tag": "x"})

    async def test_counts_in_its_base(self, alice: Caller) -> None:
        base = await alice.base()
        await alice.ingest(base.id, "a.md", TEA)

        request = pb.GetKnowledgeBaseRequest(knowledge_base_id=base.id)
        counted = (await alice.call("GetKnowledgeBase", request)).knowledge_base

        assert (counted.document_count, counted.chunk_count) == (1, 3)

    async def test_front_matter_becomes_title_and_metadata(self, alice: Caller) -> None:
        base = await alice.base()
        content = "---\ntitle: On tea\ntags: [a, 1, null]\n---\n\n# Tea\n\ntext\n"

        document = await alice.ingest(base.id, "a.md", content, metadata={"by": "alice"})

        assert document.title == "On tea"
        expected = {"title": "On tea", "tags": ["a", 1.0, None], "by": "alice"}
        assert expected == {key: plain(value) for key, value in document.metadata.items()}

    async def test_the_same_content_again_changes_nothing(self, alice: Caller) -> None:
        base = await alice.base()
        document = await alice.ingest(base.id, "a.md", TEA)

        assert document == await alice.put(base.id, "a.md", TEA)

    async def test_other_content_replaces_the_old_when_it_is_ready(
        self, alice: Caller, system: System
    ) -> None:
        base = await alice.base()
        await alice.ingest(base.id, "a.md", "# Tea\n\nold\n")
        system.embedding.open.clear()
        document = await alice.put(base.id, "a.md", "# Tea\n\nnew\n")
        assert (document.version, document.searchable_version) == (2, 1)
        assert [hit.chunk.text for hit in await alice.search(base.id, "tea")] == ["old"]

        system.embedding.open.set()
        document = await alice.settled(document.id)

        assert (document.version, document.searchable_version) == (2, 2)
        assert [hit.chunk.text for hit in await alice.search(base.id, "tea")] == ["new"]

    async def test_a_request_id_makes_it_safe_to_repeat(self, alice: Caller) -> None:
        base, request_id = await alice.base(), new_id()
        first = await alice.put(base.id, "a.md", "one", request_id=request_id)

        again = await alice.put(base.id, "a.md", "one", request_id=request_id.upper())

        assert first.id == again.id
        with refused(StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED"):
            await alice.put(base.id, "a.md", "two", request_id=request_id)

    async def test_what_cannot_be_read_is_refused_at_once(self, alice: Caller) -> None:
        base = await alice.base()
        content = b"# Caf\xe9 menu\n"

        with refused(StatusCode.INVALID_ARGUMENT, "INVALID_ENCODING") as refusal:
            await alice.put(base.id, "menu.md", content)
        assert refusal.told.metadata == {"byte_offset": "5", "document": "menu.md"}
        assert refusal.fields == ["content"]
        with refused(StatusCode.INVALID_ARGUMENT, "UNSUPPORTED_MEDIA_TYPE") as refusal:
            await alice.put(base.id, "menu.pdf", content, media_type="application/pdf")
        assert refusal.fields == ["media_type"]

        document = await alice.ingest(
            base.id, "menu.md", content, media_type="text/markdown; charset=windows-1252"
        )
        assert [chunk.heading_path[0] for chunk in await alice.chunks(document.id)] == ["Café menu"]

    async def test_metadata_has_bounds(self, alice: Caller) -> None:
        base = await alice.base()
        for metadata in ({"a": "x" * 65_536}, {"a": [1.0, float("nan")]}, {"a": float("inf")}):
            with refused(StatusCode.INVALID_ARGUMENT, "INVALID_FIELD") as refusal:
                await alice.put(base.id, "a.md", "text", metadata=metadata)
            assert refusal.fields == ["metadata"]

    async def test_metadata_of_any_shape_comes_back(self, alice: Caller) -> None:
        base = await alice.base()
        metadata = {
            "nested": nested(29),
            "big": 1e308,
            "small": 5e-324,
            "": "empty key",
            "no": False,
        }
        struct = Struct()
        struct.update(metadata)

        document = await alice.put(base.id, "a.md", "text", metadata=metadata)

        assert struct == document.metadata
        listed = pb.ListDocumentsRequest(knowledge_base_id=base.id)
        found = (await alice.call("ListDocuments", listed)).documents
        assert [struct] == [each.metadata for each in found]

    async def test_metadata_that_is_nested_too_deeply_is_refused(self, alice: Caller) -> None:
        base = await alice.base()

        with refused(StatusCode.INVALID_ARGUMENT, "INVALID_FIELD") as refusal:
            await alice.put(base.id, "a.md", "text", metadata=nested(31))

        assert refusal.fields == ["metadata"]

    async def test_deep_front_matter_reaches_the_caller(self, alice: Caller) -> None:
        base = await alice.base()
        content = "---\ndeep: " + "{a: " * 30 + "x" + "}" * 30 + "\n---\n\ntext\n"

        document = await alice.ingest(base.id, "a.md", content)

        assert document.state == READY
        listed = pb.ListDocumentsRequest(knowledge_base_id=base.id)
        assert [document] == list((await alice.call("ListDocuments", listed)).documents)

    async def test_a_shared_base_is_filled_by_owner_and_admin_only(self, team: Team) -> None:
        base = await team.alice.base(visibility=TENANT)

        with refused(StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED"):
            await team.bob.put(base.id, "b.md", "text")
        await team.admin.ingest(base.id, "c.md", "# Shared\n\ntext")
        assert len(await team.bob.search(base.id, "text")) == 1


class TestBytesThatDatabasesRefuse:
    """Case 07: no byte of an upload or a name makes the database refuse it."""

    CASE = CASES / "07-bytes-postgres-refuses"

    async def test_a_nul_reads_as_the_replacement_character_everywhere(self, alice: Caller) -> None:
        base = await alice.base("na\0me", description="de\0scription")
        content = (self.CASE / "nul.md").read_bytes()

        document = await alice.ingest(
            base.id, "fi\0le.md", content, metadata={"k\0ey": ["v\0alue", {"\0": "\0"}]}
        )

        assert (base.display_name, base.description) == ("na\ufffdme", "de\ufffdscription")
        assert (document.state, document.display_name) == (READY, "fi\ufffdle.md")
        metadata = {key: plain(value) for key, value in document.metadata.items()}
        assert metadata == {"k\ufffdey": ["v\ufffdalue", {"\ufffd": "\ufffd"}]}
        assert self.sections("nul.md") == await shown(alice, document.id)
        assert await alice.search(base.id, "wh\0at")

    async def test_a_code_page_is_read_where_it_is_declared(self, alice: Caller) -> None:
        base = await alice.base()
        content = (self.CASE / "cp1252.md").read_bytes()

        with refused(StatusCode.INVALID_ARGUMENT, "INVALID_ENCODING") as refusal:
            await alice.put(base.id, "menu.md", content)
        assert refusal.told.metadata == {"byte_offset": "5", "document": "menu.md"}
        media_type = "text/markdown; charset=windows-1252"
        document = await alice.ingest(base.id, "menu.md", content, media_type=media_type)

        expected = self.sections("cp1252.md", "charset windows-1252")
        assert expected == await shown(alice, document.id)

    def sections(self, *keys: str) -> list[tuple[list[str], str]]:
        """The sections that the case expects: path and body."""
        expected = json.loads((self.CASE / "expected.json").read_text(encoding="utf-8"))
        for key in keys:
            expected = expected[key]
        return [(section["path"], section["body"]) for section in expected["sections"]]

    async def test_a_nul_in_front_matter_too(self, alice: Caller) -> None:
        base = await alice.base()
        content = '---\ntitle: "a\\0b"\n"k\\0": [x]\n---\n\ntext\n'

        document = await alice.ingest(base.id, "a.md", content)

        assert (document.state, document.title) == (READY, "a\ufffdb")

    @pytest.mark.parametrize("text", ["\0" * 200, "é" * 100 + "\0"])
    async def test_a_text_that_grows_over_its_bounds_is_refused(
        self, alice: Caller, text: str
    ) -> None:
        with refused(StatusCode.INVALID_ARGUMENT, "INVALID_FIELD") as refusal:
            await alice.base(text)

        assert refusal.fields == ["knowledge_base.display_name"]

    @pytest.mark.parametrize(("field", "most"), [("display_name", 200), ("description", 4000)])
    async def test_a_text_of_exactly_its_bounds_is_kept(
        self, alice: Caller, field: str, most: int
    ) -> None:
        text = ("好" * most)[: most // 3] + "x" * (most % 3)
        assert len(text.encode()) == most

        base = await alice.base(
            **{"name": "n", field: text} if field == "description" else {"name": text}
        )

        assert text == getattr(base, field)
        with refused(StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
            await update(alice, base.id, field, **{field: text + "x"})

    async def test_names_and_types_of_exactly_their_bounds_are_kept(self, alice: Caller) -> None:
        base = await alice.base()
        name, media_type = "好" * 333 + ".", "text/markdown; x=" + "y" * 183

        document = await alice.put(base.id, name, "text", media_type=media_type)

        assert (name, media_type) == (document.display_name, document.media_type)


class TestUploadDocument:
    async def test_takes_a_file_in_pieces(self, alice: Caller) -> None:
        base = await alice.base()
        content = TEA.encode()

        document = await alice.upload(
            [header(base.id), *(data(content[i : i + 7]) for i in range(0, len(content), 7))]
        )

        assert document.size_bytes == len(content)
        assert (await alice.settled(document.id)).chunks_total == 3
        assert document.id == (await alice.put(base.id, "a.md", TEA)).id

    async def test_an_empty_file_is_a_file(self, alice: Caller) -> None:
        base = await alice.base()

        document = await alice.settled((await alice.upload([header(base.id)])).id)

        assert (document.state, document.size_bytes, document.chunks_total) == (READY, 0, 0)

    async def test_the_header_comes_first_and_once(self, alice: Caller) -> None:
        base = await alice.base()
        for parts in ([data(b"x")], [], [header(base.id), header(base.id)]):
            with refused(StatusCode.INVALID_ARGUMENT, "INVALID_FIELD") as refusal:
                await alice.upload(parts)
            assert refusal.fields == ["header"]

    async def test_a_hash_is_checked_where_it_is_given(self, alice: Caller) -> None:
        base = await alice.base()

        with refused(StatusCode.INVALID_ARGUMENT, "CONTENT_MISMATCH") as refusal:
            await alice.upload([header(base.id, content_hash="0" * 64), data(b"text")])

        assert refusal.told.metadata["expected"] == "0" * 64

    async def test_more_than_the_limit_is_refused(self, alice: Caller) -> None:
        base = await alice.base()
        megabyte = data(b"x" * 2**20)

        with refused(StatusCode.INVALID_ARGUMENT, "CONTENT_TOO_LARGE") as refusal:
            await alice.upload([header(base.id), *([megabyte] * 65)])

        assert {"max_bytes": str(64 * 2**20)} == refusal.told.metadata

    async def test_bytes_that_are_no_text_are_refused_by_their_field(self, alice: Caller) -> None:
        base = await alice.base()

        with refused(StatusCode.INVALID_ARGUMENT, "INVALID_ENCODING") as refusal:
            await alice.upload([header(base.id), data(b"\xff")])

        assert refusal.fields == ["data"]

    async def test_a_foreign_base_is_refused_before_the_content_comes(self, team: Team) -> None:
        base = await team.alice.base()

        with refused(StatusCode.NOT_FOUND, "NOT_FOUND"):
            await team.bob.upload([header(base.id), data(b"x")])


class TestListDocuments:
    async def test_pages_hold_every_document_once_even_while_more_arrive(
        self, alice: Caller
    ) -> None:
        base = await alice.base()
        expected = [(await alice.put(base.id, f"{i}.md", "x")).id for i in range(5)]
        request = pb.ListDocumentsRequest(knowledge_base_id=base.id, page_size=2)
        page = await alice.call("ListDocuments", request)
        found = [document.id for document in page.documents]
        expected.append((await alice.put(base.id, "late.md", "x")).id)

        while page.next_page_token:
            request.page_token = page.next_page_token
            page = await alice.call("ListDocuments", request)
            found += [document.id for document in page.documents]

        assert expected == found

    async def test_a_token_is_its_bases_alone(self, alice: Caller) -> None:
        base, other = await alice.base(), await alice.base()
        for i in range(2):
            await alice.put(base.id, f"{i}.md", "x")
        request = pb.ListDocumentsRequest(knowledge_base_id=base.id, page_size=1)
        token = (await alice.call("ListDocuments", request)).next_page_token

        with refused(StatusCode.INVALID_ARGUMENT, "INVALID_PAGE_TOKEN"):
            stolen = pb.ListDocumentsRequest(knowledge_base_id=other.id, page_token=token)
            await alice.call("ListDocuments", stolen)

    async def test_a_page_of_heavy_documents_is_shorter(self, alice: Caller) -> None:
        base = await alice.base()
        metadata = {"a": "x" * 65_000}
        for i in range(0, 150, 10):
            names = [f"{n}.md" for n in range(i, i + 10)]
            await asyncio.gather(
                *(alice.put(base.id, name, "", metadata=metadata) for name in names)
            )

        request = pb.ListDocumentsRequest(knowledge_base_id=base.id, page_size=200)
        page = await alice.call("ListDocuments", request)

        assert 100 < len(page.documents) < 150
        assert page.next_page_token


class TestDeleteDocument:
    async def test_takes_its_chunks_along(self, alice: Caller) -> None:
        base = await alice.base()
        document = await alice.ingest(base.id, "a.md", TEA)
        request = pb.DeleteDocumentRequest(document_id=document.id)

        receipt = (await alice.call("DeleteDocument", request)).receipt

        assert (receipt.documents, receipt.chunks) == (1, 3)
        assert await alice.search(base.id, "tea") == []
        with refused(StatusCode.NOT_FOUND, "NOT_FOUND") as refusal:
            await alice.call("DeleteDocument", request)
        assert {"resource": "document", "id": document.id} == refusal.told.metadata


class TestReingestDocument:
    async def test_cuts_with_the_bases_present_chunking(self, alice: Caller) -> None:
        base = await alice.base()
        words = " ".join(f"word{i}" for i in range(60))
        document = await alice.ingest(base.id, "a.md", words)
        assert document.chunks_total == 1
        await update(
            alice, base.id, "chunking", chunking=knowledge_base_pb2.Chunking(max_tokens=32)
        )

        request = pb.ReingestDocumentRequest(document_id=document.id)
        queued = (await alice.call("ReingestDocument", request)).document
        document = await alice.settled(document.id)

        assert (queued.state, queued.version, queued.searchable_version) == (PENDING, 1, 1)
        assert document.chunks_total > 3


class TestWatchDocument:
    async def test_shows_the_way_of_a_document_and_ends(self, alice: Caller) -> None:
        base = await alice.base()
        document = await alice.put(base.id, "a.md", TEA)

        seen = [each async for each in alice.watch(document.id)]

        states = [each.state for each in seen]
        assert sorted(states) == states
        assert states[-1] == READY
        assert all(one != other for one, other in pairwise(seen))

    async def test_ends_at_once_for_a_settled_document(self, alice: Caller) -> None:
        base = await alice.base()
        document = await alice.ingest(base.id, "a.md", TEA)

        assert [document] == [each async for each in alice.watch(document.id)]

    async def test_ends_when_the_document_is_deleted(self, alice: Caller, system: System) -> None:
        base = await alice.base()
        system.embedding.open.clear()
        document = await alice.put(base.id, "a.md", TEA)

        with refused(StatusCode.NOT_FOUND, "NOT_FOUND"):
            async for each in alice.watch(document.id):
                if each.state == INGESTING:
                    request = pb.DeleteDocumentRequest(document_id=document.id)
                    await alice.call("DeleteDocument", request)
        system.embedding.open.set()


class TestListChunks:
    async def test_pages_hold_every_chunk_in_order(self, alice: Caller) -> None:
        base = await alice.base()
        content = "\n\n".join(f"# {i}\n\ntext {i}" for i in range(7))
        document = await alice.ingest(base.id, "a.md", content)

        found, request = [], pb.ListChunksRequest(document_id=document.id, page_size=3)
        while page := await alice.call("ListChunks", request):
            found += page.chunks
            request.page_token = page.next_page_token
            if not request.page_token:
                break

        assert [f"text {i}" for i in range(7)] == [chunk.text for chunk in found]
        assert list(range(7)) == [chunk.ordinal for chunk in found]
        assert (found[1].start_line, found[1].end_line) == (7, 7)
        assert {(document.id, base.id)} == {(c.document_id, c.knowledge_base_id) for c in found}
        assert all(chunk.token_count for chunk in found)


class TestPreviewChunks:
    async def test_shows_the_pieces_and_stores_nothing(self, alice: Caller, system: System) -> None:
        request = pb.PreviewChunksRequest(content=TEA.encode(), display_name="a.md")

        preview = await alice.call("PreviewChunks", request)

        assert (preview.title, preview.chunk_count) == ("Tea", 3)
        assert [chunk.text for chunk in preview.chunks] == [
            "Boil the water.",
            "Hoist the sails.",
            "Shell and cook.",
        ]
        assert preview.chunks[0].embedded_text == "Tea\nBoil the water."
        assert system.embedding.batches == []

    async def test_shows_the_first_thousand_and_counts_all(self, alice: Caller) -> None:
        content = "\n\n".join(f"# {i}\n\ntext" for i in range(1200)).encode()

        preview = await alice.call("PreviewChunks", pb.PreviewChunksRequest(content=content))

        assert (len(preview.chunks), preview.chunk_count) == (1000, 1200)

    async def test_what_cannot_be_read_is_refused(self, alice: Caller) -> None:
        request = pb.PreviewChunksRequest(content=b"\xff", display_name="a.md")

        with refused(StatusCode.INVALID_ARGUMENT, "INVALID_ENCODING"):
            await alice.call("PreviewChunks", request)

    async def test_the_overlap_has_bounds(self, alice: Caller) -> None:
        chunking = knowledge_base_pb2.Chunking(max_tokens=20, overlap_tokens=10)

        with refused(StatusCode.INVALID_ARGUMENT, "INVALID_FIELD") as refusal:
            request = pb.PreviewChunksRequest(content=b"x", chunking=chunking)
            await alice.call("PreviewChunks", request)

        assert refusal.fields == ["chunking.overlap_tokens"]


class TestSearch:
    async def test_gives_the_best_hits_with_where_they_are_from(self, alice: Caller) -> None:
        base = await alice.base()
        document = await alice.ingest(base.id, "dir/a.md", TEA)

        hits = await alice.search(base.id, "hoist all sails", top_k=2)

        assert hits[0].chunk.text == "Hoist the sails."
        assert [hit.vector_rank for hit in hits] == [1, 2]
        assert hits[0].score > hits[1].score
        assert [hit.score for hit in hits] == [hit.vector_score for hit in hits]
        assert not hits[0].HasField("keyword_rank")
        assert ("dir/a.md", document.id, ["Sea"]) == (
            hits[0].document_name,
            hits[0].chunk.document_id,
            list(hits[0].chunk.heading_path),
        )

    async def test_gives_five_unless_told_and_never_more_than_there_are(
        self, alice: Caller
    ) -> None:
        base = await alice.base()
        content = "\n\n".join(f"# {i}\n\ntext {i}" for i in range(8))
        await alice.ingest(base.id, "a.md", content)

        assert len(await alice.search(base.id, "text")) == 5
        assert len(await alice.search(base.id, "text", top_k=100)) == 8

    async def test_a_least_score_drops_the_rest(self, alice: Caller) -> None:
        base = await alice.base()
        await alice.ingest(base.id, "a.md", TEA)
        hits = await alice.search(base.id, "hoist all sails")

        kept = await alice.search(base.id, "hoist all sails", min_score=hits[0].score)

        assert [hits[0]] == kept

    async def test_a_filter_keeps_the_documents_named(self, alice: Caller) -> None:
        base = await alice.base()
        await alice.ingest(base.id, "a.md", TEA)
        wanted = await alice.ingest(base.id, "b.md", "# Other\n\ntext\n")
        narrow = search_pb2.SearchFilter(document_ids=[wanted.id.upper(), new_id()])

        hits = await alice.search(base.id, "tea", filter=narrow)

        assert {wanted.id} == {hit.chunk.document_id for hit in hits}

    async def test_several_bases_are_searched_together(self, team: Team) -> None:
        one, other = await team.alice.base(), await team.bob.base(visibility=TENANT)
        await team.alice.ingest(one.id, "a.md", "# Tea\n\none\n")
        await team.bob.ingest(other.id, "b.md", "# Tea\n\nother\n")

        request = pb.SearchRequest(knowledge_base_ids=[one.id, other.id], query="tea")
        hits = (await team.alice.call("Search", request)).hits

        assert {one.id, other.id} == {hit.chunk.knowledge_base_id for hit in hits}

    async def test_bases_of_different_models_are_refused(self, alice: Caller) -> None:
        one, other = await alice.base(), await alice.base(embedding_model=OTHER_MODEL)

        with refused(StatusCode.FAILED_PRECONDITION, "EMBEDDING_MODEL_MISMATCH") as refusal:
            request = pb.SearchRequest(knowledge_base_ids=[one.id, other.id], query="tea")
            await alice.call("Search", request)

        assert {
            "model": OTHER_MODEL,
            "expected": f"{MODEL} ({DIMENSIONS})",
            "received": f"{OTHER_MODEL} ({DIMENSIONS})",
        } == refusal.told.metadata

    async def test_a_model_of_other_dimensions_is_told_on_search_and_ingestion(
        self, alice: Caller, system: System
    ) -> None:
        base = await alice.base()
        await alice.ingest(base.id, "a.md", TEA)
        system.embedding.dimensions = 32

        with refused(StatusCode.FAILED_PRECONDITION, "EMBEDDING_MODEL_MISMATCH") as refusal:
            await alice.search(base.id, "never asked before")
        document = await alice.ingest(base.id, "b.md", TEA)

        expected = {"model": MODEL, "expected": "64", "received": "32"}
        assert expected == refusal.told.metadata
        assert document.error.reason == "EMBEDDING_MODEL_MISMATCH"

    @pytest.mark.parametrize(
        "mode", [search_pb2.SEARCH_MODE_KEYWORD, search_pb2.SEARCH_MODE_HYBRID]
    )
    async def test_other_modes_are_not_offered_yet(self, alice: Caller, mode: Any) -> None:
        base = await alice.base()

        with refused(StatusCode.INVALID_ARGUMENT, "INVALID_FIELD") as refusal:
            await alice.search(base.id, "tea", mode=mode)

        assert refusal.fields == ["mode"]

    async def test_a_blank_question_is_refused(self, alice: Caller) -> None:
        base = await alice.base()

        with refused(StatusCode.INVALID_ARGUMENT, "INVALID_FIELD") as refusal:
            await alice.search(base.id, " \n")

        assert refusal.fields == ["query"]

    async def test_a_question_that_cannot_be_embedded_is_refused(
        self, alice: Caller, system: System
    ) -> None:
        base = await alice.base()
        system.embedding.poison = "pill"

        with refused(StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
            await alice.search(base.id, "a pill")

    async def test_a_question_is_embedded_once_for_the_user_who_asks(
        self, alice: Caller, system: System
    ) -> None:
        base = await alice.base()
        question = f"unique {new_id()}"

        await alice.search(base.id, question)
        await alice.search(base.id, question)

        assert [question] == system.embedding.queries
        assert {alice.identity} == system.embedding.callers

    async def test_without_the_embedding_service_it_is_unavailable(
        self, alice: Caller, system: System
    ) -> None:
        base = await alice.base()
        system.embedding.unavailable = True

        with refused(StatusCode.UNAVAILABLE, "EMBEDDING_UNAVAILABLE"):
            await alice.search(base.id, f"unique {new_id()}")


class TestForeignIds:
    """Whatever belongs to another answers exactly as what does not exist."""

    async def test_every_method_with_anothers_ids(self, team: Team) -> None:
        base = await team.alice.base("secret name")
        document = await team.alice.ingest(base.id, "a.md", TEA)
        before = await everything(team.alice, base.id, document.id)

        for caller in (team.bob, team.stranger, team.admin):
            for name, make in METHODS.items():
                told = await answer(caller, name, make(base.id, document.id))
                random = (new_id(), new_id())
                absent = await answer(caller, name, make(*random))
                expected = absent.replace(random[0], base.id).replace(random[1], document.id)
                assert told.startswith("NOT_FOUND"), name
                assert expected == told, name

        assert before == await everything(team.alice, base.id, document.id)

    async def test_every_method_without_a_token_or_with_a_wrong_one(
        self, team: Team, system: System
    ) -> None:
        base = await team.alice.base()
        document = await team.alice.ingest(base.id, "a.md", TEA)
        wrong = dict(team.alice.metadata)["x-chatmind-identity"][:-6] + "AAAAAA"

        for caller in (system.anonymous(), system.anonymous("x.y.z"), system.anonymous(wrong)):
            for name, make in METHODS.items():
                told = await answer(caller, name, make(base.id, document.id))
                assert told.startswith("UNAUTHENTICATED"), name
                assert wrong not in told

    async def test_no_method_is_forgotten(self) -> None:
        named = {method.name for method in SERVICE.methods}

        assert named == {*METHODS, "CreateKnowledgeBase", "ListKnowledgeBases", "PreviewChunks"}

    async def test_lists_show_nothing_of_others(self, team: Team) -> None:
        await team.alice.base("secret")

        for caller in (team.bob, team.stranger, team.admin):
            found = await caller.call("ListKnowledgeBases", pb.ListKnowledgeBasesRequest())
            assert (len(found.knowledge_bases), found.next_page_token) == (0, "")

    async def test_a_filter_does_not_reach_into_other_bases(self, team: Team) -> None:
        secret = await team.alice.base()
        document = await team.alice.ingest(secret.id, "a.md", TEA)
        own = await team.bob.base()

        narrow = search_pb2.SearchFilter(document_ids=[document.id])

        assert await team.bob.search(own.id, "tea", filter=narrow) == []


SERVICE = pb.DESCRIPTOR.services_by_name["KnowledgeService"]
METHODS: dict[str, Any] = {
    "GetKnowledgeBase": lambda base, _: pb.GetKnowledgeBaseRequest(knowledge_base_id=base),
    "UpdateKnowledgeBase": lambda base, _: pb.UpdateKnowledgeBaseRequest(
        knowledge_base=knowledge_base_pb2.KnowledgeBase(id=base, description="taken"),
        update_mask=FieldMask(paths=["description"]),
    ),
    "DeleteKnowledgeBase": lambda base, _: pb.DeleteKnowledgeBaseRequest(knowledge_base_id=base),
    "CreateDocument": lambda base, _: pb.CreateDocumentRequest(
        knowledge_base_id=base, display_name="a.md", content=b"taken"
    ),
    "UploadDocument": lambda base, _: iter([header(base), data(b"taken")]),
    "GetDocument": lambda _, document: pb.GetDocumentRequest(document_id=document),
    "ListDocuments": lambda base, _: pb.ListDocumentsRequest(knowledge_base_id=base),
    "DeleteDocument": lambda _, document: pb.DeleteDocumentRequest(document_id=document),
    "ReingestDocument": lambda _, document: pb.ReingestDocumentRequest(document_id=document),
    "WatchDocument": lambda _, document: pb.WatchDocumentRequest(document_id=document),
    "ListChunks": lambda _, document: pb.ListChunksRequest(document_id=document),
    "Search": lambda base, _: pb.SearchRequest(knowledge_base_ids=[base], query="tea"),
}


async def answer(caller: Caller, method: str, request: Any) -> str:
    """Everything that an answer says, as one text."""
    call = getattr(caller.stub, method)(request, metadata=caller.metadata, timeout=10)
    try:
        if method == "WatchDocument":
            return f"OK {[each async for each in call]}"
        return f"OK {await call}"
    except aio.AioRpcError as error:
        return f"{error.code().name} {error.details()} {failure_of(error)}"


async def everything(caller: Caller, base_id: str, document_id: str) -> list[Any]:
    """All that a base and its document show."""
    base = pb.GetKnowledgeBaseRequest(knowledge_base_id=base_id)
    return [
        await caller.call("GetKnowledgeBase", base),
        await caller.get(document_id),
        await caller.chunks(document_id),
    ]


async def shown(caller: Caller, document_id: str) -> list[tuple[list[str], str]]:
    """The chunks of a document: path and text."""
    chunks = await caller.chunks(document_id)
    return [(list(chunk.heading_path), chunk.text) for chunk in chunks]


def header(base_id: str, **fields: Any) -> pb.UploadDocumentRequest:
    """The first message of an upload."""
    return pb.UploadDocumentRequest(
        header=pb.UploadDocumentHeader(knowledge_base_id=base_id, display_name="a.md", **fields)
    )


def data(content: bytes) -> pb.UploadDocumentRequest:
    """A later message of an upload."""
    return pb.UploadDocumentRequest(data=content)


def nested(levels: int) -> Any:
    """An object of so many levels."""
    value: Any = "leaf"
    for level in range(levels):
        value = {"k": value} if level % 3 else {"k": value, "l": []}
    return value


def plain(value: Any) -> Any:
    """What a Struct or a list in one holds, as Python values."""
    if isinstance(value, Struct):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, ListValue):
        return [plain(item) for item in value]
    return value
