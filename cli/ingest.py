"""Uploads many files into one knowledge base, with progress bars."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
from chatmind.knowledge.v1 import document_pb2
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cli.client import Gateway, failed_call
from cli.documents import SourceFile, follow, upload
from cli.errors import CommandError
from cli.output import Output
from cli.plain import one_line
from services.common.status import failure_of


@dataclass(frozen=True, slots=True)
class Ingested:
    """The results for a set of files.

    Attributes:
        documents: of the accepted files, READY or FAILED.
        refused: why the others were refused, by file name.
    """

    documents: list[document_pb2.Document] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def ingest(gateway: Gateway, output: Output, *, files: Sequence[SourceFile], into: str) -> Ingested:
    """Upload all files, then follow each to its end; a refused one does not stop the rest."""
    ingested = Ingested()
    with _bars(output) as progress:
        uploading = progress.add_task("uploading", total=len(files))
        uploaded = []
        for file in files:
            progress.update(uploading, description=f"uploading {one_line(file.name)}")
            try:
                uploaded.append(upload(gateway, into, file))
            except CommandError as error:
                ingested.refused[file.name] = str(error)
            except grpc.RpcError as error:
                ingested.refused[file.name] = _refusal(error)
            progress.advance(uploading)
        for document in uploaded:
            ingested.documents.append(_ingested(gateway, progress, document))
    return ingested


def _ingested(
    gateway: Gateway, progress: Progress, document: document_pb2.Document
) -> document_pb2.Document:
    last = document
    bar = progress.add_task(f"ingesting {one_line(document.display_name)}", total=None)
    for last in follow(gateway, document.id):
        progress.update(bar, completed=last.chunks_done, total=last.chunks_total or None)
    # One bar at a time: hundreds would not fit on a screen.
    progress.remove_task(bar)
    return last


def _refusal(error: grpc.RpcError) -> str:
    """Why this file was refused; raises the error again if it would hit all other files too."""
    failure = failure_of(failed_call(error))
    if failure.code is not grpc.StatusCode.INVALID_ARGUMENT:
        raise error
    return f"{failure.message} ({failure.reason})"


@contextmanager
def _bars(output: Output) -> Iterator[Progress]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    silent = output.as_json or not output.notes.is_terminal
    with Progress(*columns, console=output.notes, disable=silent) as progress:
        yield progress
