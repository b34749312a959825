"""What the launcher asks servers, against real ones and against one that talks nonsense."""

import asyncio
import socket

from nats.aio.client import Client

from services.stack.probe import Answer, ask, listed
from tests.service.rooms import NatsServer


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def connected(server: NatsServer) -> Client:
    client = Client()
    await client.connect(server.url)
    return client


async def test_long_answers_are_read_as_well_as_short_ones() -> None:
    port = _free_port()
    server = NatsServer(f'http: "127.0.0.1:{port}"')
    server.start()
    clients: list[Client] = []
    try:
        for count in (1, 8, 40):
            clients += [await connected(server) for _ in range(count - len(clients))]
            wanted = {client.client_id for client in clients}
            answer = await ask(port, "/connz?limit=1024")
            # the server may still list the connection by which its start was awaited
            assert wanted <= {each.get("cid") for each in listed(answer, "connections")}
            assert len(answer.body) > 2048 or count == 1
    finally:
        for client in clients:
            await client.close()
        server.close()


def test_what_is_no_list_is_empty() -> None:
    for body in (
        b"",
        b"109f\r\n{",
        b"[]",
        b"null",
        b'{"pollers": null}',
        b'{"pollers": 1}',
        b'{"pollers": ["x"]}',
        b"\xff",
    ):
        assert listed(Answer(200, body), "pollers") == []
    assert listed(Answer(503, b'{"pollers": [{}]}'), "pollers") == []


async def test_an_answer_that_never_ends_is_no_answer() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n{")
        await asyncio.sleep(5)
        writer.close()

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await ask(port, "/", timeout_s=0.3) == Answer(0, b"")
