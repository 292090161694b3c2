"""Makes tuner/space/data/vllm_flags.json from released vLLM wheels: `python make_flag_tables.py 0.16.0 …`.

Of each wheel only the few source files that declare options are read, by HTTP ranges; pip says where it is.
Sources are kept in --cache, so that a second run needs no network.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

from packaging.version import Version

from tuner.space.flag_source import read_flags

TARGET = Path(__file__).parents[2] / "tuner" / "space" / "data" / "vllm_flags.json"


class RangedFile(io.RawIOBase):
    """A file behind HTTP that is read piece by piece; its end is fetched once."""

    def __init__(self, url: str, tail: int = 200_000) -> None:
        self.url = url
        self.position = 0
        with self._get(f"-{tail}") as answer:
            self.tail = answer.read()
            self.size = int(answer.headers["Content-Range"].rpartition("/")[2])

    def _get(self, span: str) -> Any:
        answer = urllib.request.urlopen(urllib.request.Request(self.url, headers={"Range": f"bytes={span}"}))
        if answer.status != 206:
            raise OSError("the index does not serve parts of files")
        return answer

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence]
        return self.position

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self.size - self.position)
        if count <= 0:
            return 0
        start = self.position - (self.size - len(self.tail))
        if start >= 0:
            part = self.tail[start : start + count]
        else:
            with self._get(f"{self.position}-{self.position + count - 1}") as answer:
                part = answer.read()
        buffer[: len(part)] = part
        self.position += len(part)
        return len(part)


def wheel_url(version: str) -> str:
    """Where pip would take this version's wheel from."""
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps", "--ignore-installed"]
    more = ["--ignore-requires-python", "--only-binary", ":all:", "--report", "-", f"vllm=={version}"]
    report = subprocess.run([*pip, *more], capture_output=True, text=True, check=True).stdout
    return str(json.loads(report)["install"][0]["download_info"]["url"])


def fetch(version: str, folder: Path) -> None:
    """Write the option-declaring sources of one version below `folder`."""
    wheel = zipfile.ZipFile(io.BufferedReader(RangedFile(wheel_url(version)), 1 << 20))
    for name in sorted(wheel.namelist()):
        is_config = name.startswith("vllm/config/") and name.endswith(".py")
        if is_config or name == "vllm/engine/arg_utils.py" or name.endswith("/cli_args.py"):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(wheel.read(name))


def compact(tables: dict[str, dict[str, dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """For every flag the spans of versions in which it is the same."""
    spans: dict[str, list[dict[str, Any]]] = {}
    for version, table in tables.items():
        previous = list(tables)[list(tables).index(version) - 1]
        for name, short in table.items():
            last = spans.setdefault(name, [])
            if last and last[-1]["until"] == previous and last[-1]["flag"] == short:
                last[-1]["until"] = version
            else:
                last.append({"since": version, "until": version, "flag": short})
    return dict(sorted(spans.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="+")
    parser.add_argument("--cache", type=Path, required=True)
    args = parser.parse_args()
    tables = {}
    for version in sorted(args.versions, key=Version):
        folder = args.cache / version
        if not folder.is_dir():
            fetch(version, folder)
        flags = read_flags(folder / "vllm")
        tables[version] = {name: flag.to_json() for name, flag in flags.items()}
        print(version, len(flags))
    about = "vLLM's launch options by version, read from the released wheels (make_flag_tables.py)"
    text = json.dumps(
        {"about": about, "format": 1, "versions": list(tables), "flags": compact(tables)},
        separators=(",", ":"),
        sort_keys=True,
    )
    TARGET.write_text(text.replace('],"', '],\n"') + "\n")
    print(TARGET, TARGET.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
