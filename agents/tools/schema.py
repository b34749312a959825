"""The JSON Schema of a tool's arguments, as plain as an engine could wish.

Constraints (lengths, patterns, counts) are left out: our own validation holds them and says what is wrong, while
several engines compile them into grammars of megabytes or refuse them. References are inlined, "or null" is dropped (a
null for an optional argument is read as not given), and keys are sorted, so the bytes never change by accident.
"""

import json
from typing import Any

from pydantic import BaseModel

_KEPT = ("type", "enum", "const", "description", "default", "additionalProperties", "required")
Node = dict[str, Any]


def parameters_json(arguments: type[BaseModel]) -> str:
    """The schema as JSON text with sorted keys."""
    schema = arguments.model_json_schema()
    plain = _plain(schema, schema.get("$defs", {}))
    plain.pop("description", None)
    plain.setdefault("properties", {})
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def shape(arguments: type[BaseModel]) -> str:
    """The fields in short, with those of the objects inside: ``{steps: [{id, tier?}], notes?}``."""
    schema = arguments.model_json_schema()
    return _shape(_plain(schema, schema.get("$defs", {})))


def _shape(node: Node) -> str:
    if "properties" in node:
        fields = (_field(name, child, name in node.get("required", ())) for name, child in node["properties"].items())
        return "{" + ", ".join(fields) + "}"
    if node.get("type") == "array":
        return f"[{_shape(node['items']) or 'text'}, …]"
    return ""


def _field(name: str, node: Node, required: bool) -> str:
    return ": ".join(filter(None, (name if required else name + "?", _shape(node))))


def _plain(node: Node, defs: dict[str, Node]) -> Node:
    """One schema node without references, titles and constraints."""
    if "$ref" in node:
        target = _plain(defs[node["$ref"].rsplit("/", 1)[-1]], defs)
        return target | {k: v for k, v in node.items() if k == "description"}
    if "anyOf" in node:
        return _without_null(node, defs)
    plain = {key: node[key] for key in _KEPT if node.get(key) is not None}
    if "description" in plain:
        plain["description"] = " ".join(plain["description"].split())
    if "properties" in node:
        plain["properties"] = {name: _plain(child, defs) for name, child in node["properties"].items()}
    if "items" in node:
        plain["items"] = _plain(node["items"], defs)
    return plain


def _without_null(node: Node, defs: dict[str, Node]) -> Node:
    choices = [_plain(choice, defs) for choice in node["anyOf"] if choice.get("type") != "null"]
    about = {key: node[key] for key in ("description", "default") if node.get(key) is not None}
    return (choices[0] if len(choices) == 1 else {"anyOf": choices}) | about
