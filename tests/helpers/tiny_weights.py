"""Writes the tiny model with random weights: `python tiny_weights.py FOLDER`, where transformers is."""

from __future__ import annotations

import sys
from pathlib import Path

from tiny_model import write_tiny_model
from transformers import AutoConfig, AutoModelForCausalLM


def write_weights(folder: Path) -> None:
    """The tiny model's folder, with weights in it."""
    write_tiny_model(folder)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder)


if __name__ == "__main__":
    write_weights(Path(sys.argv[1]))
