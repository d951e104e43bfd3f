from chatmind.agent.v1 import run_pb2, session_pb2

from tests.agent.running import RunningAgent
from tests.agent.scripted_model import calls, says

USER, ASSISTANT, TOOL, SYSTEM = (
    session_pb2.Message.ROLE_USER,
    session_pb2.Message.ROLE_ASSISTANT,
    session_pb2.Message.ROLE_TOOL,
    session_pb2.Message.ROLE_SYSTEM,
)


class TestAnswers:
    async def test_a_message_is_answered_with_what_a_tool_found(
        self, service: RunningAgent
    ) -> None:
        alice = service.alice
        base_id = service.knowledge.add(alice.identity)
        agent = await alice.create_agent(knowledge_base_ids=[base_id])
        session = await alice.create_session(agent.id)
        service.model.script(
            calls(("c1", "query_knowledge", '{"query": "backups"}')), says("35 days [1].")
        )

        started = await alice.say(session.id, "How long are backups kept?")
        run = await alice.ended(started.id)

        question, asked, found, answer = await alice.messages(session.id)
        assert [each.role for each in (question, asked, found, answer)] == [
            USER,
            ASSISTANT,
            TOOL,
            ASSISTANT,
        ]
        assert answer.text == "35 days [1]."
        assert [base_id] == [each.knowledge_base_id for each in answer.citations]
        assert (
            run.state,
            run.stop_reason,
        ) == (run_pb2.Run.STATE_FINISHED, run_pb2.Run.STOP_REASON_END_TURN)
        assert (2, ["query_knowledge"], [base_id], "scripted") == (
            run.step_count,
            list(run.offered.tools),
            list(run.offered.knowledge_base_ids),
            run.offered.model,
        )

    async def test_the_offline_model_quotes_the_documents(self, service: RunningAgent) -> None:
        alice = service.alice
        base_id = service.knowledge.add(alice.identity)
        agent = await alice.create_agent(knowledge_base_ids=[base_id], model="offline")
        session = await alice.create_session(agent.id)

        run = await alice.ended((await alice.say(session.id, "How long are backups kept?")).id)

        *_, answer = await alice.messages(session.id)
        assert "Backups are kept for 35 days." in answer.text
        assert run.stop_reason == run_pb2.Run.STOP_REASON_END_TURN
        assert service.model.requests == []
