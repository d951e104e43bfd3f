"""A contract to plant faults in, and the real one as descriptors."""

import functools
import shutil
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from tests.repo.tree import ROOT, write
from tools import proto

SCRATCH = """\
syntax = "proto3";

package chatmind.scratch.v1;

import "buf/validate/validate.proto";

// ScratchService exists for this test.
service ScratchService {
  // Measure measures a span.
  rpc Measure(MeasureRequest) returns (MeasureResponse);
}

// MeasureRequest carries what to measure.
message MeasureRequest {
  // span_id is the span.
  string span_id = 1 [(buf.validate.field).string.uuid = true];
  // span is measured.
  Span span = 2 [(buf.validate.field).required = true];
  // how to measure.
  oneof how {
    // exact measures all of it.
    bool exact = 3;
  }
}

// MeasureResponse carries the length.
message MeasureResponse {
  // length is never negative.
  int32 length = 1;
}

// Span has two ends.
message Span {
  option (buf.validate.message).cel = {
    id: "span.order"
    message: "start must not follow end"
    expression: "this.start <= this.end"
  };
  // start is the first end.
  int32 start = 1;
  // end is the second end.
  int32 end = 2;
}

// Unit is what a length is counted in.
enum Unit {
  // UNIT_UNSPECIFIED means characters.
  UNIT_UNSPECIFIED = 0;
  // UNIT_LINE is a line.
  UNIT_LINE = 1;
}
"""


def write_scratch(folder: Path, text: str = SCRATCH) -> Path:
    """A contract of one file under the real rules; returns its root."""
    write(folder / "chatmind/scratch/v1/scratch.proto", text)
    shutil.copy(ROOT / "protos/buf.yaml", folder)
    return folder


def describe(protos: Path) -> tuple[FileDescriptorProto, ...]:
    """Every file of a contract, imports first, as protoc understands it."""
    with tempfile.TemporaryDirectory() as scratch:
        image = proto.build_image(protos, Path(scratch, "contract.binpb"))
        return tuple(FileDescriptorSet.FromString(image.read_bytes()).file)


@functools.cache
def described() -> tuple[FileDescriptorProto, ...]:
    """The files of ChatMind's own contract."""
    return tuple(each for each in describe(proto.PROTOS) if each.package.startswith("chatmind."))
