"""Taking out what looks like a secret, before a text leaves the house. Same text, same result; nothing of what was
there is left, not even its length.

Patterns find a secret by its own form or by what stands before it. What is found by neither stays: a recording is to be
read before it is given away.
"""

import re
from typing import Any

from agents.contracts.recorded import REDACTED

# In arguments and in JSON, quotes and line ends are escaped, so a pattern allows for backslashes before them.
_QUOTE = r"""\\*["'`]?"""
_START = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrtbf]))"
_NEW = r"(?!\[redacted\])"
"""What was taken out before is not found again."""
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?P<kind>[A-Z0-9 ]*)PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?!-----END)(?:\\+[nr]|[A-Za-z0-9+/=\s,:|.>()-]))*"
    r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)?"
)
_KNOWN = re.compile(
    _START + r"(?:"
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"
    r"|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}"
    r"|xox[a-z]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_.-]{20,}"
    r"|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,}|pypi-[A-Za-z0-9_-]{20,}|dop_v1_[a-f0-9]{20,}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|lh_[A-Za-z0-9_-]{30,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.?[A-Za-z0-9_-]*"
    r")"
)
_HEADER = re.compile(
    rf"(?i)({_START}(?:proxy-)?authorization{_QUOTE}\s*[:=]\s*{_QUOTE}(?:(?:bearer|basic|token|digest)\s+)?+)"
    r"[A-Za-z0-9._~+/=:-]{6,}"
)
_BEARER = re.compile(rf"(?i)({_START}bearer\s+)(?=[A-Za-z0-9._~+/=-]*[0-9])[A-Za-z0-9._~+/=-]{{12,}}")
_COOKIE = re.compile(rf"(?i)({_START}(?:set-)?cookie\s*:\s*+){_NEW}[^\r\n\"'\\]{{6,}}")
_URL = re.compile(rf"(?i){_START}([a-z][a-z0-9+.-]{{1,20}}://[^\s:/@\"'\\`<>]*:){_NEW}[^\s/\"'\\`<>]+(@)")
_NAMES = (
    r"api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?key"
    r"|secret|token|passwords?|passwd|passphrase|pwd|credentials?"
)
_ASSIGNED = re.compile(
    rf"(?i)(?P<before>(?P<name>{_NAMES})(?:[_-][a-z0-9]{{1,40}}){{0,4}}"
    rf"{_QUOTE}\s*(?::=|=>|=|:|\s-)\s*(?P<quote>{_QUOTE}))"
    r"(?P<value>[^\s\"'`\\,;<>{}()\[\]]{4,})"
)
_HEX = re.compile(rf"(?i)(key[a-z0-9_.-]{{0,40}}{_QUOTE}\s*[:=]\s*{_QUOTE})(?:0x)?[0-9a-f]{{20,}}\b")
_OPTION = re.compile(rf"(?i)(--?(?:{_NAMES})(?:=|\s+){_QUOTE}){_NEW}[^\s\"'`\\]{{4,}}")


def redact(text: str) -> tuple[str, int]:
    """The text without what looks like a secret, and how many places that was."""
    found = 0
    for pattern, instead in _RULES:
        text, n = pattern.subn(instead, text)
        found += n
    text, n = _assigned(text)
    return text, found + n


_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (_PRIVATE_KEY, REDACTED),
    (_URL, rf"\g<1>{REDACTED}\g<2>"),
    (_HEADER, rf"\g<1>{REDACTED}"),
    (_BEARER, rf"\g<1>{REDACTED}"),
    (_COOKIE, rf"\g<1>{REDACTED}"),
    (_KNOWN, REDACTED),
    (_HEX, rf"\g<1>{REDACTED}"),
    (_OPTION, rf"\g<1>{REDACTED}"),
)


def _assigned(text: str) -> tuple[str, int]:
    found = 0

    def instead(match: re.Match[str]) -> str:
        nonlocal found
        if not _secret(match["name"], match["value"], quoted=bool(match["quote"])):
            return match[0]
        found += 1
        return match["before"] + REDACTED

    return _ASSIGNED.sub(instead, text), found


def _secret(name: str, value: str, *, quoted: bool) -> bool:
    """Whether a value assigned to such a name is one: code such as ``token = parser.next`` is not."""
    digits, letters = any(c.isdigit() for c in value), any(c.isalpha() for c in value)
    if value in (REDACTED, "None", "null", "true", "false", "True", "False"):
        return False
    if quoted and name.lower().startswith("pass"):
        return True
    return len(value) >= 8 and digits and (letters or len(value) >= 12) and not value.startswith(("$", "%"))


def redact_all(value: Any) -> tuple[Any, int]:
    """A value of JSON with every string in it redacted, names of fields apart."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        pairs = [redact_all(item) for item in value]
        return [item for item, _ in pairs], sum(n for _, n in pairs)
    if isinstance(value, dict):
        named = {key: redact_all(item) for key, item in value.items()}
        return {key: item for key, (item, _) in named.items()}, sum(n for _, n in named.values())
    return value, 0
