"""`chatmind agent`."""

import json

import pytest
from chatmind.agent.v1 import agent_pb2
from google.protobuf.json_format import MessageToDict

from tests.cli.conftest import Chatmind
from tests.cli.gateway import Base, State


def agent(name: str, *, model: str = "", system_prompt: str = "") -> agent_pb2.Agent:
    return agent_pb2.Agent(
        id=f"id-{name}", display_name=name, model=model, system_prompt=system_prompt
    )


class TestList:
    def test_every_page_is_shown(self, chatmind: Chatmind, state: State) -> None:
        state.agents = [agent(f"agent {number}") for number in range(5)]
        result = chatmind("agent", "list")

        assert result.exit_code == 0
        names = [line[:7] for line in result.stdout.splitlines()[1:]]
        assert names == [f"agent {number}" for number in range(5)]

    def test_for_scripts_each_is_an_object(self, chatmind: Chatmind, state: State) -> None:
        state.agents = [agent("a", model="m"), agent("中文")]
        lines = chatmind("agent", "list", "--json").stdout.splitlines()

        assert [json.loads(line)["display_name"] for line in lines] == ["a", "中文"]
        assert json.loads(lines[0])["model"] == "m"


class TestCreate:
    def test_all_that_is_said_of_it_is_sent(self, chatmind: Chatmind, state: State) -> None:
        state.bases = [Base(id="b1", display_name="handbook")]
        state.agents = [agent("Researcher")]
        result = chatmind(
            *(
                "agent",
                "create",
                "Guide",
                "--description",
                "Guides.",
                "--prompt",
                "Be brief.",
                "--model",
                "m",
                "--shared",
            ),
            *("--base", "handbook", "--tool", "current_time", "--tool", "other"),
            *("--agent", "Researcher"),
        )
        _, made = state.agents

        assert result.stdout == f"{made.id}\n"
        assert (made.display_name, made.system_prompt, made.model) == ("Guide", "Be brief.", "m")
        assert list(made.knowledge_base_ids) == ["b1"]
        assert list(made.tools) == ["current_time", "other"]
        assert (made.description, list(made.agent_ids)) == ("Guides.", ["id-Researcher"])
        assert made.visibility == agent_pb2.VISIBILITY_TENANT

    def test_a_base_that_is_not_there_is_told(self, chatmind: Chatmind, state: State) -> None:
        result = chatmind("agent", "create", "Guide", "--base", "nothing")

        assert (result.exit_code, state.agents) == (1, [])
        assert result.stderr == "error: no knowledge base is called 'nothing'\n"

    def test_it_is_private_unless_it_is_shared(self, chatmind: Chatmind, state: State) -> None:
        chatmind("agent", "create", "Guide")

        assert state.agents[0].visibility == agent_pb2.VISIBILITY_PRIVATE


class TestUpdate:
    def test_what_is_named_changes_and_nothing_else(self, chatmind: Chatmind, state: State) -> None:
        state.agents = [agent("Guide", model="m"), agent("Researcher"), agent("Writer")]
        state.agents[0].agent_ids.append("id-Writer")
        told = ("--agent", "Researcher", "--description", "Guides.", "--prompt", "")
        result = chatmind("agent", "update", "Guide", *told, "--time-zone", "Asia/Tokyo")
        guide = state.agents[0]

        assert result.stdout == "id-Guide\n"
        assert (guide.display_name, guide.model, guide.description) == ("Guide", "m", "Guides.")
        assert list(guide.agent_ids) == ["id-Researcher"]
        assert guide.time_zone == "Asia/Tokyo"

    def test_tools_and_bases_are_put_in_place_of_those_so_far(
        self, chatmind: Chatmind, state: State
    ) -> None:
        state.bases = [Base(id="b1", display_name="handbook")]
        chatmind("agent", "create", "Guide", "--tool", "calculator", "--tool", "convert")
        chatmind("agent", "update", "Guide", "--tool", "current_time", "--base", "handbook")
        assert list(state.agents[0].tools) == ["current_time"]
        assert list(state.agents[0].knowledge_base_ids) == ["b1"]

        chatmind("agent", "update", "Guide", "--no-tools", "--no-bases")
        assert not state.agents[0].tools
        assert not state.agents[0].knowledge_base_ids

        both = chatmind("agent", "update", "Guide", "--tool", "calculator", "--no-tools")
        assert both.stderr == "error: --tool and --no-tools exclude each other\n"

    def test_it_can_be_let_ask_nobody(self, chatmind: Chatmind, state: State) -> None:
        state.agents = [agent("Guide")]
        state.agents[0].agent_ids.append("id-Writer")

        chatmind("agent", "update", "Guide", "--no-agents")

        assert list(state.agents[0].agent_ids) == []

    def test_what_makes_no_sense_is_told(self, chatmind: Chatmind, state: State) -> None:
        state.agents = [agent("Guide")]

        nothing = chatmind("agent", "update", "Guide")
        both = chatmind("agent", "update", "Guide", "--agent", "Guide", "--no-agents")

        assert nothing.stderr.startswith("error: nothing is to be changed")
        assert both.stderr == "error: --agent and --no-agents exclude each other\n"


class TestMcpServers:
    def test_they_are_given_and_taken_away(self, chatmind: Chatmind, state: State) -> None:
        chatmind("agent", "create", "Guide", "--mcp", "files", "--mcp", "web")
        assert list(state.agents[0].mcp_servers) == ["files", "web"]

        chatmind("agent", "update", "Guide", "--mcp", "web")
        assert list(state.agents[0].mcp_servers) == ["web"]

        chatmind("agent", "update", "Guide", "--no-mcp")
        assert list(state.agents[0].mcp_servers) == []

    def test_both_at_once_make_no_sense(self, chatmind: Chatmind, state: State) -> None:
        state.agents = [agent("Guide")]

        result = chatmind("agent", "update", "Guide", "--mcp", "web", "--no-mcp")

        assert result.stderr == "error: --mcp and --no-mcp exclude each other\n"


class TestShow:
    def test_text_is_readable_in_every_script(self, chatmind: Chatmind, state: State) -> None:
        state.agents = [agent("Guide", system_prompt="说中文")]

        assert '"system_prompt": "说中文"' in chatmind("agent", "show", "Guide").stdout

    def test_one_that_is_not_there_is_told(self, chatmind: Chatmind) -> None:
        result = chatmind("agent", "show", "Nobody")

        assert result.exit_code == 1
        assert result.stderr == (
            "error: no agent is called 'Nobody'; create one with `chatmind agent create`\n"
        )


class TestDelete:
    def test_who_says_no_keeps_it(self, chatmind: Chatmind, state: State) -> None:
        state.agents = [agent("Guide")]
        result = chatmind("agent", "delete", "Guide", stdin="n\n")

        assert (result.exit_code, len(state.agents), result.stdout) == (1, 1, "")

    def test_who_says_yes_does_not(self, chatmind: Chatmind, state: State) -> None:
        state.agents = [agent("Guide"), agent("Other")]
        result = chatmind("agent", "delete", "Guide", "--yes")

        assert [each.display_name for each in state.agents] == ["Other"]
        assert result.stdout == "deleted id-Guide\n"


class TestHooks:
    def test_an_agent_is_made_with_them_and_changed(self, chatmind: Chatmind, state: State) -> None:
        limits = 'call_limits={"tools": {"max_calls": 5}}'
        chatmind("agent", "create", "Guide", "--hook", "logging", "--hook", limits)
        logging, bounded = state.agents[0].hooks

        assert (logging.name, bounded.name) == ("logging", "call_limits")
        assert MessageToDict(bounded.config) == {"tools": {"max_calls": 5}}

        chatmind("agent", "update", "Guide", "--hook", "pii_masking")
        assert [hook.name for hook in state.agents[0].hooks][-1] == "pii_masking"

    def test_what_makes_no_sense_is_told(self, chatmind: Chatmind, state: State) -> None:
        state.agents = [agent("Guide")]

        both = chatmind("agent", "update", "Guide", "--hook", "logging", "--no-hooks")

        assert both.stderr == "error: --hook and --no-hooks exclude each other\n"


class TestMemory:
    def test_it_is_set_and_changed_by_a_word(self, chatmind: Chatmind, state: State) -> None:
        strategy = agent_pb2.Window.Strategy
        chatmind("agent", "create", "Guide")
        assert state.agents[0].window.strategy == strategy.STRATEGY_WINDOW

        chatmind("agent", "create", "Other", "--memory", "compaction")
        assert state.agents[1].window.strategy == strategy.STRATEGY_COMPACTION

        chatmind("agent", "update", "Guide", "--memory", "token-budget")
        assert state.agents[0].window.strategy == strategy.STRATEGY_TOKEN_BUDGET

    def test_another_word_is_refused(self, chatmind: Chatmind) -> None:
        assert chatmind("agent", "create", "Guide", "--memory", "all").exit_code == 2


class TestApprovals:
    def test_are_said_tool_by_tool(self, chatmind: Chatmind, state: State) -> None:
        words = ("--approval", "send=always", "--approval", "look=never")
        chatmind("agent", "create", "Clerk", *words)

        told = [(each.tool, each.mode) for each in state.agents[-1].approvals]
        modes = agent_pb2.ToolApproval
        assert told == [("send", modes.MODE_ALWAYS), ("look", modes.MODE_NEVER)]

    def test_they_are_changed_and_taken_away(self, chatmind: Chatmind, state: State) -> None:
        state.agents = [agent("Clerk")]
        words = ("--approval", "ask_writer=always", "--approval", "notes_send=never")

        chatmind("agent", "update", "Clerk", *words)
        told = [(each.tool, each.mode) for each in state.agents[0].approvals]
        result = chatmind("agent", "update", "Clerk", *words, "--no-approvals")
        chatmind("agent", "update", "Clerk", "--no-approvals")

        modes = agent_pb2.ToolApproval
        assert told == [("ask_writer", modes.MODE_ALWAYS), ("notes_send", modes.MODE_NEVER)]
        assert result.stderr == "error: --approval and --no-approvals exclude each other\n"
        assert list(state.agents[0].approvals) == []

    @pytest.mark.parametrize("text", ["send", "=always", "send=sometimes"])
    def test_anything_else_is_refused(self, chatmind: Chatmind, state: State, text: str) -> None:
        result = chatmind("agent", "create", "Clerk", "--approval", text)

        assert (result.exit_code, state.agents) == (1, [])
        assert text in result.stderr
