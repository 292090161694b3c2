"""The machine's description: what was measured on, and nothing that names the host."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from tuner.hardware import describe_machine, find_gpu
from tuner.hardware.machine import cpu_model, installed_version


def test_it_describes_the_machine_and_names_no_host(tmp_path: Path) -> None:
    (tmp_path / "torch-2.13.0+cpu.dist-info").mkdir()
    (tmp_path / "torchvision-0.1.dist-info").mkdir()
    found = describe_machine(find_gpu("2xA100-80G"), driver="570.1", vllm_version="0.32.0", packages=tmp_path)
    assert found["gpu"] == "A100-80G" and found["gpu_count"] == 2 and found["driver"] == "570.1"
    assert found["vllm"] == "0.32.0" and found["torch"] == "2.13.0+cpu"
    assert found["cores"] >= 1 and found["memory_gib"] > 0.1
    text = json.dumps(found)
    assert socket.gethostname() not in text and str(tmp_path) not in text


def test_what_cannot_be_found_is_left_out(tmp_path: Path) -> None:
    found = describe_machine(find_gpu("cpu"), driver=None, vllm_version="0.32.0", packages=tmp_path / "no")
    assert "driver" not in found and "torch" not in found
    assert installed_version("torch", None) is None


def test_the_cpu_is_read_from_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n")
    assert cpu_model(tmp_path / "cpuinfo") == "Some CPU @ 2 GHz"
