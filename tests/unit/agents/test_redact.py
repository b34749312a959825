"""What looks like a secret leaves no trace, and what does not is left alone."""

import json

import pytest

from agents.contracts.recorded import REDACTED
from agents.policy.redact import redact, redact_all

SECRETS = [
    ("export OPENAI_API_KEY={}", "sk-proj-Ab3dEf6hIj9kLmN0pQrStUv"),
    ("the key is {} as I said", "sk-" + "ant-api03-" + "aB3x" * 8),
    ("{}", "ghp_abcdefghijklmnopqrstuvwxyz012345"),
    ("curl -H 'Authorization: Bearer {}' x", "abcDEF123.456-ghi_jkl"),
    ("Authorization: Basic {}", "dXNlcjpwYXNzd29yZA=="),
    ("bearer {}", "0123456789abcdefABCDEF"),
    ("aws_access_key_id = {}", "AKIAIOSFODNN7EXAMPLE"),
    ("aws_secret_access_key = {}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("postgres://longhaul:{}@127.0.0.1:5432/db", "p4ss:word@with#signs"),
    ("key={}", "0123456789abcdef0123456789abcdef"),
    ("signing_key: 0x{}", "00ff" * 8),
    ('password = "{}"', "hunter"),
    ('{{"db": {{"passwd": "{}"}}}}', "correct-horse"),
    ("PGPASSWORD={} psql", "s3cr3t-enough"),
    ("mysql --password {} db", "hunter22"),
    ("SECRET_TOKEN: '{}'", "a1b2c3d4e5"),
    ("Set-Cookie: {}", "lh=aaaaaaaaaaaaaa1; Path=/"),
    ("{}", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.dozjgNryP4J3jVmNHl0w5N"),
    ("{}", "xoxb-1234567890-abcdefghij"),
    ("{}", "AIzaSyA1234567890abcdefghijklmnopqrstuvw"),
    ("{}", "lh_" + "aB3-" * 10),
    ("{}", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXkt\nAAAA=\n-----END OPENSSH PRIVATE KEY-----"),
    ("{}\n[cut here]", "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIEpAIBAAKCAQEA1"),
]


@pytest.mark.parametrize(("around", "secret"), SECRETS, ids=range(len(SECRETS)))
def test_a_secret_is_taken_out(around: str, secret: str) -> None:
    text = around.format(secret)
    clean, found = redact(text)
    assert found == 1, clean
    assert REDACTED in clean
    assert not any(part in clean for part in secret.split() if len(part) > 5)
    assert redact(clean) == (clean, 0)


@pytest.mark.parametrize(("around", "secret"), SECRETS, ids=range(len(SECRETS)))
def test_also_inside_json_in_json_and_it_stays_json(around: str, secret: str) -> None:
    raw = json.dumps({"content": f"first\n{around.format(secret)}\nlast"})
    clean, found = redact(raw)
    assert found >= 1
    assert secret not in json.loads(clean)["content"]
    assert REDACTED in json.loads(clean)["content"]
    again, _ = redact(json.dumps({"arguments": raw}))
    assert secret not in json.loads(json.loads(again)["arguments"])["content"]


def test_the_length_of_a_secret_is_not_kept() -> None:
    assert redact("API_KEY=abcdefgh12") == redact("API_KEY=" + "abcdefgh12" * 9)


@pytest.mark.parametrize(
    "text",
    [
        "token = parser.next_token()",
        "for token in tokens: count[token] += 1",
        "tokens left: 12345",
        "sorted(rows, key=lambda row: row.total)",
        "password = getpass()",
        "def check(password: str, secret: bytes) -> bool:",
        "https://example.org:8443/a/b?c=d",
        "commit 57701ed3cf64317f3676ed83009e80625fc0abea",
        "sha256 57701ed3cf64317f3676ed83009e80625fc0abeaa32298ceebf43676befba85f",
        "the secret of a good test is that it can fail",
        "max_tokens = 4096",
        "primary key: (task_id, seq)",
        "-----BEGIN CERTIFICATE-----",
        "a basic understanding of bearer instruments",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text) == (text, 0)


PIECES = [
    "a",
    "a.",
    "token_",
    "key",
    "key_a",
    "://",
    "a://b:",
    "password=",
    "\\",
    "--token ",
    "-----BEGIN PRIVATE KEY-----",
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", PIECES)
def test_long_texts_take_no_time(piece: str) -> None:
    redact(piece * (200_000 // len(piece)))


def test_every_string_of_a_value_is_looked_at() -> None:
    value = {"a": ["x", {"b": "API_KEY=abcdefgh12"}], "token": 5, "c": None}
    assert redact_all(value) == ({"a": ["x", {"b": f"API_KEY={REDACTED}"}], "token": 5, "c": None}, 1)
