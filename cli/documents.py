"""Files on disk into a knowledge base, each followed until it can be searched."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from chatmind.knowledge.v1 import document_pb2, knowledge_base_pb2, knowledge_service_pb2

from cli.client import CALL_SECONDS, Gateway
from cli.errors import CommandError

MEDIA_TYPES = {".md": "text/markdown", ".markdown": "text/markdown", ".txt": "text/plain"}

_PIECE_BYTES = 256 * 1024
_UPLOAD_SECONDS = 300.0
_FINAL = {document_pb2.Document.STATE_READY, document_pb2.Document.STATE_FAILED}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to upload.

    Attributes:
        path: where it lies.
        name: what the document is called: the path below the folder that was named.
    """

    path: Path
    name: str


def find_files(paths: Iterable[Path]) -> list[SourceFile]:
    """The documents among the paths; folders are searched, hidden ones left out.

    Raises:
        CommandError: a path does not exist, or is a file of another kind.
    """
    return [file for path in paths for file in _files_below(path)]


def _files_below(path: Path) -> list[SourceFile]:
    if path.is_dir():
        found = (p for p in sorted(path.rglob("*")) if p.suffix.lower() in MEDIA_TYPES)
        root = path.resolve().parent
        return [
            SourceFile(p, p.resolve().relative_to(root).as_posix())
            for p in found
            if p.is_file() and not any(part.startswith(".") for part in p.relative_to(path).parts)
        ]
    if not path.is_file():
        raise CommandError(f"{path}: no such file or folder")
    if path.suffix.lower() not in MEDIA_TYPES:
        raise CommandError(f"{path}: only {', '.join(sorted(MEDIA_TYPES))} can be read")
    return [SourceFile(path, path.name)]


def find_base(gateway: Gateway, name: str) -> knowledge_base_pb2.KnowledgeBase | None:
    """The first base of this name that the caller can see."""
    request = knowledge_service_pb2.ListKnowledgeBasesRequest(display_name=name, page_size=1)
    bases = gateway.knowledge.ListKnowledgeBases(request, timeout=CALL_SECONDS).knowledge_bases
    return bases[0] if bases else None


def base_id(gateway: Gateway, name: str) -> str:
    """The id of the base of this name.

    Raises:
        CommandError: there is none.
    """
    base = find_base(gateway, name)
    if base is None:
        raise CommandError(f"no knowledge base is called {name!r}")
    return base.id


def ensure_base(
    gateway: Gateway, base: knowledge_base_pb2.KnowledgeBase
) -> knowledge_base_pb2.KnowledgeBase:
    """The base of this name, created as described where there is none."""
    found = find_base(gateway, base.display_name)
    if found is not None:
        return found
    request = knowledge_service_pb2.CreateKnowledgeBaseRequest(knowledge_base=base)
    return gateway.knowledge.CreateKnowledgeBase(request, timeout=CALL_SECONDS).knowledge_base


def upload(gateway: Gateway, base_id: str, file: SourceFile) -> document_pb2.Document:
    """Uploads a file; the same content again changes nothing."""
    content = file.path.read_bytes()
    header = knowledge_service_pb2.UploadDocumentHeader(
        knowledge_base_id=base_id,
        display_name=file.name,
        media_type=MEDIA_TYPES[file.path.suffix.lower()],
        content_hash=hashlib.sha256(content).hexdigest(),
    )
    return gateway.knowledge.UploadDocument(
        _parts(header, content), timeout=_UPLOAD_SECONDS
    ).document


def follow(gateway: Gateway, document_id: str) -> Iterator[document_pb2.Document]:
    """The document after each change, up to the last: READY or FAILED."""
    request = knowledge_service_pb2.WatchDocumentRequest(document_id=document_id)
    for response in gateway.knowledge.WatchDocument(request):
        yield response.document
        if response.document.state in _FINAL:
            return


def _parts(
    header: knowledge_service_pb2.UploadDocumentHeader, content: bytes
) -> Iterator[knowledge_service_pb2.UploadDocumentRequest]:
    yield knowledge_service_pb2.UploadDocumentRequest(header=header)
    for start in range(0, len(content), _PIECE_BYTES):
        piece = content[start : start + _PIECE_BYTES]
        yield knowledge_service_pb2.UploadDocumentRequest(data=piece)
