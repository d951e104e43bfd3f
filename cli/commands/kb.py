"""`chatmind kb`: knowledge bases and their documents."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from chatmind.knowledge.v1 import document_pb2, knowledge_base_pb2, knowledge_service_pb2

from cli.app import confirm, remote
from cli.client import CALL_SECONDS, Gateway, pages
from cli.documents import base_id, ensure_base, find_files
from cli.errors import CommandError
from cli.ingest import ingest
from cli.output import Output, as_dict, counted, word
from cli.plain import one_line

app = typer.Typer(help="Knowledge bases and their documents.", no_args_is_help=True)

BaseOption = Annotated[str, typer.Option("--base", help="The knowledge base, by name.")]

_State = document_pb2.Document.State
_Visibility = knowledge_base_pb2.Visibility


@app.command("list")
@remote
def list_bases(gateway: Gateway, output: Output) -> None:
    """List the knowledge bases you can see."""
    bases = list(_all_bases(gateway))
    output.table(
        bases,
        columns=("NAME", "DOCUMENTS", "CHUNKS", "MODEL", "ID"),
        rows=(
            (
                b.display_name,
                str(b.document_count),
                str(b.chunk_count),
                b.embedding_model,
                b.id,
            )
            for b in bases
        ),
    )


@app.command("create")
@remote
def create_base(
    gateway: Gateway,
    output: Output,
    name: Annotated[str, typer.Argument(help="What people call it.")],
    *,
    description: Annotated[str, typer.Option(help="Tells agents what can be found here.")] = "",
    shared: Annotated[bool, typer.Option(help="Let everyone in the tenant use it.")] = False,
) -> None:
    """Create an empty knowledge base."""
    base = knowledge_base_pb2.KnowledgeBase(
        display_name=name, description=description, visibility=_visibility(shared=shared)
    )
    request = knowledge_service_pb2.CreateKnowledgeBaseRequest(knowledge_base=base)
    created = gateway.knowledge.CreateKnowledgeBase(request, timeout=CALL_SECONDS)
    output.message(created.knowledge_base, text=created.knowledge_base.id)


@app.command("add")
@remote
def add_documents(
    gateway: Gateway,
    output: Output,
    paths: Annotated[list[Path], typer.Argument(help="Files, and folders to search for files.")],
    *,
    base: BaseOption,
    shared: Annotated[
        bool, typer.Option(help="Let everyone in the tenant use it, if it is made now.")
    ] = False,
) -> None:
    """Add documents to a knowledge base, which is made if there is none of that name."""
    files = find_files(paths)
    if not files:
        raise CommandError("there is no document to add")
    wanted = knowledge_base_pb2.KnowledgeBase(
        display_name=base, visibility=_visibility(shared=shared)
    )
    ensured = ensure_base(gateway, wanted)
    ingested = ingest(gateway, output, files=files, into=ensured.id)
    ready = [d for d in ingested.documents if d.state == _State.STATE_READY]
    for document in ingested.documents:
        if output.as_json:
            output.record(as_dict(document))
        elif document.state == _State.STATE_FAILED:
            output.error(f"{document.display_name}: {document.error.message}")
    for name, why in ingested.refused.items():
        # The service names the document in some refusals itself.
        output.error(f"{name}: {why.removeprefix(f'{name}: ')}")
    chunks = sum(d.chunks_total for d in ready)
    output.note(f"{counted(len(ready), 'document')} ready, {counted(chunks, 'chunk')}")
    if len(ready) < len(files):
        raise typer.Exit(1)


@app.command("documents")
@remote
def list_documents(
    gateway: Gateway,
    output: Output,
    *,
    base: BaseOption,
) -> None:
    """List the documents of a knowledge base."""
    documents = list(_all_documents(gateway, base_id(gateway, base)))
    output.table(
        documents,
        columns=("NAME", "STATE", "CHUNKS", "BYTES", "ID"),
        rows=(
            (
                d.display_name,
                word(_State.Name, d.state, prefix="STATE_"),
                str(d.chunks_total),
                str(d.size_bytes),
                d.id,
            )
            for d in documents
        ),
    )


@app.command("search")
@remote
def search(
    gateway: Gateway,
    output: Output,
    query: Annotated[str, typer.Argument(help="The question.")],
    *,
    base: BaseOption,
    top_k: Annotated[int, typer.Option(help="How many passages to show.", min=1, max=100)] = 5,
) -> None:
    """Find the passages that answer a question best."""
    request = knowledge_service_pb2.SearchRequest(
        knowledge_base_ids=[base_id(gateway, base)], query=query, top_k=top_k
    )
    hits = gateway.knowledge.Search(request, timeout=CALL_SECONDS).hits
    if not hits:
        output.note(f"{base!r} holds nothing to search; add documents with `chatmind kb add`")
    for hit in hits:
        chunk = hit.chunk
        place = " > ".join((hit.document_name, *chunk.heading_path))
        lines = f"(lines {chunk.start_line}-{chunk.end_line})"
        head = f"{hit.score:.3f}  {one_line(place)}  {lines}"
        output.message(hit, text=f"{head}\n{_indented(chunk.text)}\n")


@app.command("delete")
@remote
def delete(
    gateway: Gateway,
    output: Output,
    *,
    base: BaseOption,
    document: Annotated[
        str, typer.Option("--document", help="Delete this document alone, by name.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a knowledge base, or one document of it, for good."""
    what = f"document {document!r} of {base!r}" if document else f"knowledge base {base!r}"
    if not yes:
        confirm(output, f"Delete {what} for good?")
    receipt = _delete(gateway, base_id(gateway, base), document=document)
    documents, chunks = counted(receipt.documents, "document"), counted(receipt.chunks, "chunk")
    output.message(receipt, text=f"deleted {documents}, {chunks}")


def _delete(
    gateway: Gateway, base_id: str, *, document: str
) -> knowledge_service_pb2.DeletionReceipt:
    if not document:
        request = knowledge_service_pb2.DeleteKnowledgeBaseRequest(knowledge_base_id=base_id)
        return gateway.knowledge.DeleteKnowledgeBase(request, timeout=CALL_SECONDS).receipt
    found = [d for d in _all_documents(gateway, base_id) if d.display_name == document]
    if not found:
        raise CommandError(f"no document is called {document!r}")
    return gateway.knowledge.DeleteDocument(
        knowledge_service_pb2.DeleteDocumentRequest(document_id=found[0].id),
        timeout=CALL_SECONDS,
    ).receipt


def _all_bases(gateway: Gateway) -> Iterator[knowledge_base_pb2.KnowledgeBase]:
    request = knowledge_service_pb2.ListKnowledgeBasesRequest()
    for page in pages(gateway.knowledge.ListKnowledgeBases, request):
        yield from page.knowledge_bases


def _all_documents(gateway: Gateway, base_id: str) -> Iterator[document_pb2.Document]:
    request = knowledge_service_pb2.ListDocumentsRequest(knowledge_base_id=base_id)
    for page in pages(gateway.knowledge.ListDocuments, request):
        yield from page.documents


def _visibility(*, shared: bool) -> knowledge_base_pb2.Visibility.ValueType:
    return _Visibility.VISIBILITY_TENANT if shared else _Visibility.VISIBILITY_PRIVATE


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
