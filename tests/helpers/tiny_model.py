"""Writes a model that vLLM can serve with random weights: a config.json and a tokenizer, made here."""

from __future__ import annotations

import json
from pathlib import Path

VOCABULARY = 4096
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def write_tiny_model(folder: Path) -> Path:
    """A Llama of two layers whose tokenizer has a word for every id: "w17" is 17."""
    folder.mkdir(parents=True, exist_ok=True)
    special = ["<unk>", "<s>", "</s>"]
    words = special + [f"w{number}" for number in range(len(special), VOCABULARY)]
    added = [
        {"id": number, "content": word, "special": True, "single_word": False, "lstrip": False}
        | {"rstrip": False, "normalized": False}
        for number, word in enumerate(special)
    ]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(words)},
            "unk_token": "<unk>",
        },
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": "{% for message in messages %}{{ message['content'] }} {% endfor %}",
    }
    for name, value in (
        ("config.json", CONFIG),
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", settings),
        ("generation_config.json", {"bos_token_id": 1, "eos_token_id": 2}),
    ):
        (folder / name).write_text(json.dumps(value))
    return folder
