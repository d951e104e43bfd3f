"""What agents can be given."""

from chatmind.agent.v1 import hook_pb2, model_pb2, tool_pb2

from tests.cli.conftest import Chatmind
from tests.cli.gateway import State


class TestModels:
    def test_they_are_listed_with_the_default(self, chatmind: Chatmind, state: State) -> None:
        state.models = [
            model_pb2.Model(name="big", model="big-1", default=True),
            model_pb2.Model(name="small", model="small-1"),
        ]
        lines = chatmind("agent", "models").stdout.splitlines()

        assert [line.split() for line in lines[1:]] == [
            ["big", "big-1", "yes"],
            ["small", "small-1"],
        ]

    def test_their_servers_are_told_by_state(self, chatmind: Chatmind, state: State) -> None:
        kinds = model_pb2.Model.Endpoint
        states = (kinds.STATE_HEALTHY, kinds.STATE_RESTING, kinds.STATE_HEALTHY)
        servers = [kinds(state=each) for each in states]
        state.models = [model_pb2.Model(name="big", model="big-1", endpoints=servers)]

        assert "2 healthy, 1 resting" in chatmind("agent", "models").stdout


class TestTools:
    def test_they_are_listed_with_what_they_do_to_the_world(
        self, chatmind: Chatmind, state: State
    ) -> None:
        state.tools = [
            tool_pb2.Tool(
                name="calculator",
                description="Calculates exactly.\n\nGoes in: numbers.",
                effect=tool_pb2.Tool.EFFECT_READ_ONLY,
                trusted=True,
            ),
            tool_pb2.Tool(
                name="http_fetch", description="Reads.", effect=tool_pb2.Tool.EFFECT_OUTBOUND
            ),
        ]
        lines = chatmind("agent", "tools").stdout.splitlines()
        assert [line.split() for line in lines[1:]] == [
            ["calculator", "reads", "only", "yes", "Calculates", "exactly."],
            ["http_fetch", "reaches", "out", "Reads."],
        ]


class TestHooks:
    def test_they_are_listed(self, chatmind: Chatmind, state: State) -> None:
        state.hooks = [hook_pb2.Hook(name="logging", priority=7, description="Logs.")]
        lines = chatmind("agent", "hooks").stdout.splitlines()

        assert [line.split() for line in lines[1:]] == [["logging", "7", "Logs."]]
