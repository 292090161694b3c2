"""Exports read back: a profile to export, what each format's reader makes of it, and a command's flags."""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml
from hypothesis import strategies as st

from tuner.masking import mask
from tuner.profiles import Measured, Profile, UsersRow
from tuner.profiles.secrets import is_secret
from tuner.space import flag_table
from tuner.space.argv import rendered, to_argv
from tuner.space.config import LaunchConfig
from tuner.space.flag import Flag, FlagKind
from tuner.space.flags import RESERVED
from tuner.spec import FlagValue

FLAGS: dict[str, FlagValue] = {
    "max-num-seqs": 512,
    "gpu-memory-utilization": 0.94,
    "enable-prefix-caching": False,
    "async-scheduling": True,
    "cudagraph-capture-sizes": (1, 2, 4),
    "kv-cache-dtype": "fp8",
}
VERSION = "0.21.0"


def make_profile(
    flags: Mapping[str, FlagValue] = FLAGS,
    *,
    model: str = "org/model",
    provenance: str = "simulated",
    gpu: str = "2xA100-80G",
    study: str = "a100-80g-model-1a2b3c4d",
    version: str = VERSION,
    note: str = "",
) -> Profile:
    measured = Measured(
        flags=LaunchConfig.of(flags),
        command=("vllm", "serve", model, *to_argv(flags, version)),
        throughput_rps=3.25,
        output_tps=650.0,
        p99_s=27.5,
        p99_interval_s=(26.0, None),
        mean_s=9.0,
        users=96,
        kv_tokens=186_000,
        startup_s=42.5,
        effective={"max-num-seqs": 512},
        note=note,
    )
    return Profile(
        study=study,
        gpu=gpu,
        model=model,
        vllm_version=version,
        slo={"e2e_p99_s": 30.0},
        trace={"path": "shipped", "digest": "00ff", "requests": 2000},
        window=(0.5, 1.0),
        start_rps=1.67,
        requests=1000,
        seed=0,
        recommendation="tuned",
        winner=measured,
        baseline=measured,
        gain=1.42,
        provenance=provenance,
        users_table=(UsersRow(10, 1.0, 2.0, 0.5, None),),
        created="2026-01-01T00:00:00+00:00",
    )


def words_of_vllm_config(text: str) -> list[str]:
    """What any vLLM makes of a config file: a false is dropped, the items of a list are words."""
    words: list[str] = []
    for key, value in yaml.safe_load(text).items():
        if value is True:
            words.append(f"--{key}")
        elif isinstance(value, list):
            words += [f"--{key}", *map(str, value)]
        elif value is not False:
            words += [f"--{key}", str(value)]
    assert words[0] == "--model"
    return ["vllm", "serve", *words[1:]]


def words_of_shell(text: str) -> list[str]:
    """What a shell makes of the script, `exec` replaced by something that prints its words."""
    script = text.replace("\nexec ", "\nprintf '%s\\0' ", 1)
    shown = subprocess.run(["bash", "-s"], input=script.encode(), capture_output=True, check=True)
    return shown.stdout.decode().split("\0")[:-1]


def words_of_compose(text: str) -> list[str]:
    (service,) = yaml.safe_load(text)["services"].values()
    words = service["entrypoint"] + service["command"]
    assert not any(re.search(r"(?<!\$)\$(?!\$)", word.replace("$$", "")) for word in words)
    return [word.replace("$$", "$") for word in words]


def words_of_kubernetes(text: str) -> list[str]:
    deployment, service = yaml.safe_load_all(text)
    assert (deployment["kind"], service["kind"]) == ("Deployment", "Service")
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return [word.replace("$$", "$") for word in container["command"] + container["args"]]


def words_of_helm(text: str) -> list[str]:
    """What the chart makes of its values, less the host and port that it adds (its template
    deployment-vllm-multi.yaml): a vllmConfig without enablePrefixCaching would switch prefix caching off.
    """
    (model,) = yaml.safe_load(text)["servingEngineSpec"]["modelSpec"]
    words = ["vllm", "serve", model["modelURL"]]
    if config := model.get("vllmConfig"):
        words.append(
            "--enable-prefix-caching" if config.get("enablePrefixCaching") else "--no-enable-prefix-caching"
        )
        if "tensorParallelSize" in config:
            words += ["--tensor-parallel-size", str(config["tensorParallelSize"])]
        words += config.get("extraArgs", [])
        assert set(config) <= {"enablePrefixCaching", "tensorParallelSize", "extraArgs"}
    return [word.replace("$$", "$") for word in words]


def words_of_systemd(text: str) -> list[str]:
    """ExecStart= as systemd.service(5) reads it: continued lines, quotes, C escapes, doubled % and $."""
    joined = text.replace("\\\n", " ")
    (line,) = [line for line in joined.splitlines() if line.startswith("ExecStart=")]
    words = []
    for quoted, bare in re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', line.removeprefix("ExecStart=")):
        word = bare or re.sub(r"\\(U[0-9a-f]{8}|x[0-9a-f]{2}|.)", _unescaped, quoted)
        words.append(word.replace("%%", "%").replace("$$", "$"))
    assert words[0] == "/usr/bin/env"
    return words[1:]


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if code[0] in "Ux" and len(code) > 1 else code


def words_of_json(text: str) -> list[str]:
    words: list[str] = json.loads(text)["argv"]
    return words


READERS: dict[str, Callable[[str], list[str]]] = {
    "vllm": words_of_vllm_config,
    "shell": words_of_shell,
    "compose": words_of_compose,
    "kubernetes": words_of_kubernetes,
    "systemd": words_of_systemd,
    "helm": words_of_helm,
    "json": words_of_json,
}


def parser_of(version: str, names: Sequence[str]) -> argparse.ArgumentParser:
    """An argument parser as vLLM builds it from these flags of its table, and nothing that guesses."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, argument_default=argparse.SUPPRESS, exit_on_error=False
    )
    parser.add_argument("model")
    for name in names:
        flag = flag_table(version).get(name)
        assert flag is not None, name
        kind = {FlagKind.INT: int, FlagKind.FLOAT: float, FlagKind.JSON: json.loads}.get(flag.kind, str)
        if flag.readable or flag.auto:
            kind = str
        if flag.kind is FlagKind.BOOL:
            action = argparse.BooleanOptionalAction if flag.negatable else "store_true"
            parser.add_argument(f"--{name}", action=action)
        elif flag.bare:
            parser.add_argument(f"--{name}", nargs="?", const=True, type=kind)
        elif flag.repeated:
            parser.add_argument(f"--{name}", action="append", type=kind)
        else:
            parser.add_argument(f"--{name}", nargs="+" if flag.listed else None, type=kind)
    return parser


def flags_read(words: Sequence[str], version: str = VERSION) -> dict[str, Any]:
    """The model and the flags of `vllm serve` words, typed as the flag table says."""
    assert list(words[:2]) == ["vllm", "serve"]
    options = {word.partition("=")[0].removeprefix("--") for word in words[2:] if word.startswith("--")}
    table = flag_table(version)
    names = [name if table.get(name) else name.removeprefix("no-") for name in sorted(options)]
    read = vars(parser_of(version, list(dict.fromkeys(names))).parse_args(list(words[2:])))
    return {key.replace("_", "-"): value for key, value in read.items()}


def flags_meant(flags: Mapping[str, FlagValue], model: str, version: str = VERSION) -> dict[str, Any]:
    """The same from the flags themselves: what cannot be said on a command line (a None, a false that has no
    negative form) is left to vLLM.
    """
    meant: dict[str, Any] = {"model": model}
    for name, value in rendered(flags, version).items():
        flag = flag_table(version).get(name)
        assert flag is not None
        if value is False and (flag.bare or (flag.kind is FlagKind.BOOL and not flag.negatable)):
            continue
        meant[name] = _typed(flag, value)
    return meant


def _typed(flag: Flag, value: Any) -> Any:
    if flag.kind is FlagKind.JSON:
        return json.loads(value) if isinstance(value, str) else list(value)
    if isinstance(value, tuple):
        return [_word(flag, item) for item in value]
    if isinstance(value, bool):
        return value
    return [_word(flag, value)] if flag.listed or flag.repeated else _word(flag, value)


def _word(flag: Flag, value: Any) -> Any:
    if flag.readable or flag.auto or flag.kind is FlagKind.STR:
        whole = isinstance(value, float) and value.is_integer()
        return str(int(value) if whole else value)
    return int(value) if flag.kind is FlagKind.INT else float(value)


NASTY = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12
) | st.sampled_from(
    [
        *(
            "a b",
            "it's",
            '"',
            "$HOME",
            "$(id)",
            "`id`",
            "%n",
            "a\nb",
            "\\",
            "ü",
            "on",
            "1e3",
            "# x",
            "${A:-b}",
        ),
        *(
            "a\\",
            "'",
            "''",
            "$$",
            "{{ x }}",
            "~",
            "no",
            "0o17",
            "1_000",
            "null",
            "a: b",
            "- a",
            "&a",
            "*a",
            "!t",
        ),
        *(
            "\t",
            "a ",
            " a",
            "\u2028",
            "\x85",
            "\ufeff",
            "😀",
            "-x",
            "--max-num-seqs",
            "=",
            "a=b",
            ";",
            "|",
            ">",
            "",
        ),
    ]
)
_NAMES = [
    name for name in sorted(flag_table(VERSION).flags) if name not in RESERVED and not is_secret(name, "x")
]


def _value_of(flag: Flag) -> st.SearchStrategy[Any]:
    words = NASTY.filter(lambda text: mask(text) == text and not is_secret("", text))
    if flag.kind is FlagKind.BOOL:
        return st.booleans()
    if flag.choices:
        one: st.SearchStrategy[Any] = st.sampled_from(flag.choices)
    elif flag.kind is FlagKind.INT:
        one = st.integers(int(flag.low or 0), int(min(flag.high or 2**20, 2**20)))
    elif flag.kind is FlagKind.FLOAT:
        one = st.floats(flag.low or 0.0, min(flag.high or 1e6, 1e6)).map(lambda number: round(number, 6))
    elif flag.kind is FlagKind.JSON:
        inner = st.none() | st.booleans() | st.integers() | words
        one = st.dictionaries(words.filter(lambda key: not is_secret(key, "x")), inner, max_size=2).map(
            lambda table: json.dumps(table, sort_keys=True, separators=(",", ":"))
        )
    else:
        one = words
    if flag.listed or flag.repeated:
        # a word of a list cannot begin with a dash, whoever writes the command
        each = one.filter(lambda item: not str(item).startswith("-"))
        return st.lists(each, min_size=1, max_size=3).map(tuple)
    return one


@st.composite
def launchable(draw: st.DrawFn, names: Sequence[str] = tuple(_NAMES)) -> dict[str, FlagValue]:
    """Flags of vLLM 0.21 with values that its parser takes, nasty ones among them, and None."""
    table = flag_table(VERSION)
    flags: dict[str, FlagValue] = {}
    for name in draw(st.lists(st.sampled_from(names), max_size=5, unique=True)):
        flag = table.get(name)
        assert flag is not None
        value = draw(st.none() | _value_of(flag))
        if isinstance(value, float) and not math.isfinite(value):
            continue
        if flag.problem(value) is None:
            flags[name] = value
    return flags
