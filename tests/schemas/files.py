"""Writes files with schemas, for tests."""

import json
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {
            "name": "address",
            "type": {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]},
        },
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
ORDER_PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Item { string sku = 1; uint32 number = 2; }
enum State { OPEN = 0; PAID = 1; }
message Order {
  int64 id = 1;
  double total = 2;
  string name = 3;
  repeated Item items = 4;
  map<int32, Item> places = 5;
  google.protobuf.Timestamp at = 6;
  google.protobuf.Duration took = 7;
  google.protobuf.Int64Value weight = 8;
  google.protobuf.Struct more = 9;
  optional int32 rank = 10;
  oneof payment { string card = 11; uint64 cash = 12; }
  State state = 13;
  Order parent = 14;
  bytes seal = 15;
  map<string, bool> flags = 16;
}
"""
ORDER_JSON = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "total": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "address": {"$ref": "#/$defs/address"},
        "prices": {"type": "object", "additionalProperties": {"type": "number"}},
        "note": {"type": ["string", "null"]},
        "any": {},
    },
    "required": ["id", "total"],
    "$defs": {"address": {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": False}},
}


def written(case: SynchronousTestCase, name: str, content: Any) -> str:
    """Write a file in a folder of its own; maps are written as JSON. Returns its path."""
    folder = Path(case.mktemp()).absolute()
    folder.mkdir()
    file = folder / name
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(file)
