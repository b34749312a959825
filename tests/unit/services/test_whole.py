"""Text of an engine that UTF-8 cannot hold."""

from services.inference.failures import excerpt, whole
from services.inference.pacing import Coalescer
from services.inference.reply import ReplyParts


def test_halves_are_joined_and_a_half_alone_is_replaced() -> None:
    assert whole("a\ud83d\ude00b") == "a\U0001f600b"
    assert whole("a\ud83db") == "a\ufffdb"
    assert whole("plain \U0001f600") == "plain \U0001f600"
    assert excerpt("it said\n\ud83d") == "it said \ufffd"


async def test_a_reply_in_halves_is_streamed_and_kept() -> None:
    heard: list[str] = []

    async def on_text(text: str) -> None:
        heard.append(text)

    said, parts = Coalescer(on_text), ReplyParts()
    for half in ("\ud83d", "\ude00"):
        await said.push(parts.add({"choices": [{"delta": {"content": half}}]}))
    await said.flush()
    assert whole(parts.text) == "\U0001f600"
    assert all(text == whole(text) for text in heard)


def test_arguments_can_be_stored() -> None:
    parts = ReplyParts()
    call = {"index": 0, "id": "c", "function": {"name": "shell", "arguments": '{"command": "\ud83d"}'}}
    parts.add({"choices": [{"delta": {"tool_calls": [call]}}]})
    [made] = parts.tool_calls("key")
    assert made.arguments == '{"command": "\ufffd"}'
