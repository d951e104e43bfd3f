"""Hooks as they are written on the command line."""

from collections.abc import Iterable

from chatmind.agent.v1 import agent_pb2
from google.protobuf.json_format import Parse, ParseError
from google.protobuf.struct_pb2 import Struct

from cli.errors import CommandError


def hooks_of(written: Iterable[str]) -> list[agent_pb2.AgentHook]:
    """Hooks from `NAME` or `NAME=CONFIGURATION`, a JSON object.

    Raises:
        CommandError: a configuration is no JSON object.
    """
    return [_hook(each) for each in written]


def _hook(written: str) -> agent_pb2.AgentHook:
    name, _, config = written.partition("=")
    hook = agent_pb2.AgentHook(name=name)
    if config:
        try:
            hook.config.CopyFrom(Parse(config, Struct()))
        except ParseError as error:
            raise CommandError(
                f"the configuration of the hook {name!r} is no JSON object: {config}"
            ) from error
    return hook
