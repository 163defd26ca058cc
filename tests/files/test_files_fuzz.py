"""Files of any content: what is written can be read again; what is damaged gives one clear
message."""

import gzip
import json
import math
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Instance
from optsched.errors import InputError
from optsched.files import (
    dump_instance,
    instance_hash,
    load_instance,
    read_instance,
    schema,
    write_text,
)
from optsched.files.faults import find_faults
from tests.instance_strategies import instances

GOOD = json.dumps(
    {
        "format": "optsched/1",
        "name": "good",
        "now_s": 100,
        "cluster": {
            "nodes": [
                {
                    "name": "a[0-1]",
                    "gpu_type": "a100",
                    "gpus": 4,
                    "gpu_memory_gib": 40,
                    "cpus": 16,
                    "rack": "r",
                },
                {"name": "v0", "gpu_type": "v100", "gpus": 4},
            ],
            "resources": {"licence": 2, "power_w": 4000},
            "budgets": {"energy": 100},
            "rack_uplink_gbps": {"r": 40},
        },
        "tenants": [
            {"name": "blue", "gpu_quota": 4},
            {"name": "green", "gpu_quota": 3, "borrow_gpus": 2},
        ],
        "jobs": [
            {
                "id": "run",
                "gpus": 2,
                "duration_s": 50,
                "tenant": "blue",
                "profile": {"power_w": {"a100": 250}},
            },
            {"id": "old", "gpus": 1, "duration_s": 50.5},
            {
                "id": "one",
                "gpus": {"min": 1, "max": 4},
                "duration_s": 20,
                "after": ["run", "old"],
                "deadline_s": 500,
                "profile": {
                    "rate": {"a100": 1, "v100": 0.5},
                    "gpus": {"1": 0.3, "4": 1},
                    "cpus_per_gpu": {"1": 0.5, "2": 1},
                    "locality": {"node": 1, "cluster": 0.5},
                    "sharing": {"duty": 0.5, "with": {"x": 0.9}},
                    "gpu_memory_gib": 20,
                    "checkpoint_s": 5,
                    "power_w": {"a100": 300},
                    "network_gbps": 5,
                    "clocks": {"900": {"rate": 0.9, "power": 0.7}},
                },
            },
            {
                "id": "two",
                "modes": [
                    {"duration_s": 8, "gpus": 0, "cpus": 2, "resources": {"licence": 1}},
                    {"duration_s": 4, "gpus": 1, "gpu_type": "v100", "budgets": {"energy": 5}},
                ],
            },
        ],
        "running": [
            {
                "job": "run",
                "mode": {"gpu_type": "a100", "gpus": 2},
                "placement": [{"node": "a0", "gpus": 2}],
                "started_s": 50,
                "remaining_s": 10,
            }
        ],
        "suspended": [{"job": "old", "remaining_s": 5}],
    }
)

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(10**400), 10**400),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(
        [
            "one",
            "run",
            "a0",
            "a[0-1]",
            "licence",
            "[",
            "1",
            "x" * 500,
            [],
            {},
            [1],
            {"min": 2, "max": 1},
            {"gpus": 1},
            -1,
            0,
            1e400,
            1e12,
            math.nan,
            [[[]]],
            ["one"],
            ["one", "one"],
        ]
    ),
)


def loads_or_explains(data: bytes | str) -> None:
    """A sound instance, or InputError with something to read; nothing else."""
    try:
        instance = load_instance(data, "file.json")
    except InputError as error:
        text = str(error)
        assert text.startswith("file.json: ") and len(text) > len("file.json: ") + 10
        assert "\n\n" not in text and "Traceback" not in text and "pydantic" not in text
        return
    assert find_faults(instance) == []
    assert load_instance(dump_instance(instance)) == instance


def spots(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key in a tree of JSON values."""
    found: list[tuple[Any, Any]] = []
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in list(pairs):
        found.append((value, key))
        found.extend(spots(inner))
    return found


@settings(max_examples=250)
@given(st.data())
def test_a_file_with_values_dropped_replaced_or_doubled(data: st.DataObject) -> None:
    tree = json.loads(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        at = spots(tree)
        if not at:
            break
        parent, key = data.draw(st.sampled_from(range(len(at))).map(at.__getitem__))
        match data.draw(st.sampled_from(["drop", "replace", "double", "move", "rename"])):
            case "drop":
                del parent[key]
            case "replace":
                parent[key] = data.draw(JUNK)
            case "double" if isinstance(parent, list):
                parent.append(parent[key])
            case "move":
                other, where = data.draw(st.sampled_from(range(len(at))).map(at.__getitem__))
                other[where] = json.loads(json.dumps(parent[key]))
            case "rename" if isinstance(parent, dict):
                parent[
                    data.draw(st.sampled_from(["id", "name", "gpus", "x", "", "with", "Elastic"]))
                ] = parent.pop(key)
            case _:
                pass
    loads_or_explains(json.dumps(tree))


@settings(max_examples=200)
@given(
    st.integers(0, len(GOOD) - 1),
    st.integers(0, 255),
    st.sampled_from(["flip", "cut", "drop", "double", "paste"]),
)
def test_a_file_with_damaged_bytes(at: int, byte: int, how: str) -> None:
    data = GOOD.encode()
    loads_or_explains(
        {
            "flip": data[:at] + bytes([byte]) + data[at + 1 :],
            "cut": data[:at],
            "drop": data[:at] + data[at + 1 + byte % 8 :],
            "double": data[:at] + data[max(0, at - byte) :],
            "paste": data[:at] + data[byte : byte + 20] + data[at:],
        }[how]
    )


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_a_file_of_any_bytes(data: bytes) -> None:
    loads_or_explains(data)


@settings(max_examples=60)
@given(st.integers(0, 400), st.integers(1, 255))
def test_a_damaged_gzip_file(tmp_path_factory: pytest.TempPathFactory, at: int, flip: int) -> None:
    path = tmp_path_factory.mktemp("gz") / "file.json.gz"
    data = bytearray(gzip.compress(GOOD.encode(), mtime=0))
    data[at % len(data)] ^= flip
    path.write_bytes(data)
    try:
        read_instance(path)
    except InputError as error:
        assert str(path) in str(error)


@settings(max_examples=60)
@given(instances())
def test_an_instance_comes_back_from_its_file(instance: Instance) -> None:
    text = dump_instance(instance)
    loaded = load_instance(text)
    assert loaded == instance
    assert dump_instance(loaded) == text
    assert instance_hash(loaded) == instance_hash(instance)


VALIDATOR = jsonschema.Draft202012Validator(schema("instance"))


@settings(max_examples=25)
@given(instances())
def test_what_is_written_is_valid_under_the_schema(instance: Instance) -> None:
    VALIDATOR.validate(json.loads(dump_instance(instance)))


@settings(max_examples=10)
@given(instances())
def test_an_instance_comes_back_from_a_gzip_file(
    tmp_path_factory: pytest.TempPathFactory, instance: Instance
) -> None:
    path = tmp_path_factory.mktemp("gz") / "file.json.gz"
    write_text(path, dump_instance(instance))
    first = path.read_bytes()
    assert first[:2] == b"\x1f\x8b" and read_instance(path) == instance
    write_text(path, dump_instance(read_instance(path)))
    assert path.read_bytes() == first
