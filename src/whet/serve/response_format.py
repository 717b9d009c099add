"""The form that a client wants a reply to have, as OpenAI's requests say it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from whet.serve.fields import Strict, check_whole
from whet.types import is_deeper

MAX_SCHEMA_CHARS, MAX_DEPTH = 65_536, 64
"""Of a schema as JSON: its length, and how deep its objects and lists lie in one another."""
ANY_OBJECT = '{"type": "object"}'


class JsonSchema(Strict):
    name: str = Field(pattern="^[a-zA-Z0-9_-]{1,64}$")
    """Not shown to the model, as are the description and the schema."""
    description: str | None = Field(None, max_length=10_000)
    content: Mapping[str, Any] = Field(alias="schema")
    strict: bool | None = None
    """Replies follow the schema in any case."""

    @field_validator("content")
    @classmethod
    def check_size(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        if is_deeper(content, MAX_DEPTH):
            raise ValueError(f"at most {MAX_DEPTH} objects and lists in one another")
        text = json.dumps(content)
        if len(text) > MAX_SCHEMA_CHARS:
            raise ValueError(f"at most {MAX_SCHEMA_CHARS} characters as JSON, and this one has {len(text)}")
        check_whole(json.dumps(content, ensure_ascii=False))
        return content


class ResponseFormat(Strict):
    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema | None = Field(None, validate_default=True)

    @field_validator("json_schema")
    @classmethod
    def check_type(cls, json_schema: JsonSchema | None, info: ValidationInfo) -> JsonSchema | None:
        if (info.data.get("type") == "json_schema") != (json_schema is not None):
            raise ValueError("it goes with the type json_schema")
        return json_schema

    @property
    def schema_text(self) -> str | None:
        """The schema that a reply has to follow, as JSON. None: any text."""
        if self.type == "text":
            return None
        return ANY_OBJECT if self.json_schema is None else json.dumps(self.json_schema.content)
