"""Finds files on disk, uploads them, and follows each until it can be searched."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import grpc
from chatmind.knowledge.v1 import document_pb2, knowledge_service_pb2

from cli.client import Gateway, events
from cli.errors import CommandError
from cli.retries import Retries
from services.common.text import clean

MEDIA_TYPES = {".md": "text/markdown", ".markdown": "text/markdown", ".txt": "text/plain"}

_PIECE_BYTES = 256 * 1024
_UPLOAD_SECONDS = 300.0
_FINAL = {document_pb2.Document.STATE_READY, document_pb2.Document.STATE_FAILED}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to upload.

    Attributes:
        path: its place on disk.
        name: the document's name, which is the path from the folder that was given.
    """

    path: Path
    name: str


def find_files(paths: Iterable[Path]) -> list[SourceFile]:
    """The files to upload among the paths, each once; folders are searched, except hidden ones.

    Links are followed to files within the folder that was given, but not out of it.

    Raises:
        CommandError: a path does not exist, is of another kind or cannot be read; or two files
            would get the same name.
    """
    places: set[Path] = set()
    named: dict[str, SourceFile] = {}
    for file in (file for path in paths for file in _files_of(path)):
        place = file.path.resolve()
        if place in places:
            continue
        places.add(place)
        other = named.setdefault(file.name, file)
        if other is not file:
            raise CommandError(
                f"{other.path} and {file.path} would both be called {file.name!r}; "
                "add them from a folder above both"
            )
    return list(named.values())


def _files_of(path: Path) -> Iterable[SourceFile]:
    try:
        if path.is_dir():
            return _files_below(path)
        if not path.exists():
            raise CommandError(f"{path}: no such file or folder")
    except OSError as error:
        _unreadable(error)
    if not path.is_file() or path.suffix.lower() not in MEDIA_TYPES:
        raise CommandError(f"{path}: only {', '.join(sorted(MEDIA_TYPES))} files can be added")
    return [SourceFile(path, clean(path.name))]


def _files_below(folder: Path) -> Iterator[SourceFile]:
    root = folder.resolve()
    for place, folders, names in os.walk(folder, onerror=_unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(place, name) for name in sorted(names) if not name.startswith(".")):
            wanted = path.suffix.lower() in MEDIA_TYPES
            if wanted and path.is_file() and path.resolve().is_relative_to(root):
                name = (root.name / path.relative_to(folder)).as_posix()
                yield SourceFile(path, clean(name))


def _unreadable(error: OSError) -> NoReturn:
    raise CommandError(f"{error.filename}: cannot be read ({error.strerror})") from error


def upload(gateway: Gateway, base_id: str, file: SourceFile) -> document_pb2.Document:
    """Upload a file, piece by piece; the same content again changes nothing.

    Raises:
        CommandError: the file cannot be read.
    """
    try:
        with file.path.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        _unreadable(error)
    header = knowledge_service_pb2.UploadDocumentHeader(
        knowledge_base_id=base_id,
        display_name=file.name,
        media_type=MEDIA_TYPES[file.path.suffix.lower()],
        content_hash=digest,
    )
    return gateway.knowledge.UploadDocument(
        _parts(header, file.path), timeout=_UPLOAD_SECONDS
    ).document


def follow(
    gateway: Gateway, document_id: str, *, retries: Retries | None = None
) -> Iterator[document_pb2.Document]:
    """The document after each change, until it is READY or FAILED."""
    retries = retries or Retries()
    request = knowledge_service_pb2.WatchDocumentRequest(document_id=document_id)
    while True:
        broken = None
        try:
            for response in events(gateway.knowledge.WatchDocument(request)):
                retries.reset()
                yield response.document
                if response.document.state in _FINAL:
                    return
        except grpc.RpcError as error:
            broken = error
        retries.wait(broken)


def _parts(
    header: knowledge_service_pb2.UploadDocumentHeader, path: Path
) -> Iterator[knowledge_service_pb2.UploadDocumentRequest]:
    yield knowledge_service_pb2.UploadDocumentRequest(header=header)
    with path.open("rb") as content:
        while piece := content.read(_PIECE_BYTES):
            yield knowledge_service_pb2.UploadDocumentRequest(data=piece)
