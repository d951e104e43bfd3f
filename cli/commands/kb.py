"""`chatmind kb`: manages knowledge bases and their documents."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from chatmind.knowledge.v1 import document_pb2, knowledge_base_pb2, knowledge_service_pb2

from cli.app import confirm, remote
from cli.client import CALL_SECONDS, Gateway, listed
from cli.documents import find_files
from cli.errors import CommandError
from cli.ingest import ingest
from cli.lookup import new_base, one_base, one_base_or_new
from cli.output import Output, as_dict, counted, word
from cli.plain import one_line

app = typer.Typer(help="Knowledge bases and their documents.", no_args_is_help=True)

BaseOption = Annotated[str, typer.Option("--base", help="The knowledge base, by name or id.")]

_State = document_pb2.Document.State
_Visibility = knowledge_base_pb2.Visibility


@app.command("list")
@remote
def list_bases(gateway: Gateway, output: Output) -> None:
    """List the knowledge bases you can see."""
    bases = list(
        listed(
            gateway.knowledge.ListKnowledgeBases,
            knowledge_service_pb2.ListKnowledgeBasesRequest(),
            lambda page: page.knowledge_bases,
        )
    )
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
    created = new_base(gateway, base)
    output.message(created, text=created.id)


@app.command("add")
@remote
def add_documents(
    gateway: Gateway,
    output: Output,
    paths: Annotated[list[Path], typer.Argument(help="Files, and folders to search for files.")],
    *,
    base: BaseOption,
    shared: Annotated[
        bool, typer.Option(help="Let everyone in the tenant use it, if it is created now.")
    ] = False,
) -> None:
    """Add documents to a knowledge base, which is created if there is none of that name."""
    files = find_files(paths)
    if not files:
        raise CommandError("there is no document to add")
    wanted = knowledge_base_pb2.KnowledgeBase(
        display_name=base, visibility=_visibility(shared=shared)
    )
    ensured = one_base_or_new(gateway, wanted)
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
    documents = list(_all_documents(gateway, one_base(gateway, base).id))
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
        knowledge_base_ids=[one_base(gateway, base).id], query=query, top_k=top_k
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
        str | None, typer.Option("--document", help="Delete only this document, by name.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a knowledge base, or one document of it, for good."""
    of_base = document is None
    what = f"knowledge base {base!r}" if of_base else f"document {document!r} of {base!r}"
    if not yes:
        confirm(output, f"Delete {what} for good?")
    receipt = _delete(gateway, one_base(gateway, base).id, document=document)
    documents, chunks = counted(receipt.documents, "document"), counted(receipt.chunks, "chunk")
    output.message(receipt, text=f"deleted {documents}, {chunks}")


def _delete(
    gateway: Gateway, base_id: str, *, document: str | None
) -> knowledge_service_pb2.DeletionReceipt:
    if document is None:
        request = knowledge_service_pb2.DeleteKnowledgeBaseRequest(knowledge_base_id=base_id)
        return gateway.knowledge.DeleteKnowledgeBase(request, timeout=CALL_SECONDS).receipt
    found = [d for d in _all_documents(gateway, base_id) if d.display_name == document]
    if not found:
        raise CommandError(f"no document is called {document!r}")
    return gateway.knowledge.DeleteDocument(
        knowledge_service_pb2.DeleteDocumentRequest(document_id=found[0].id),
        timeout=CALL_SECONDS,
    ).receipt


def _all_documents(gateway: Gateway, base_id: str) -> Iterator[document_pb2.Document]:
    request = knowledge_service_pb2.ListDocumentsRequest(knowledge_base_id=base_id)
    return listed(gateway.knowledge.ListDocuments, request, lambda page: page.documents)


def _visibility(*, shared: bool) -> knowledge_base_pb2.Visibility.ValueType:
    return _Visibility.VISIBILITY_TENANT if shared else _Visibility.VISIBILITY_PRIVATE


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
