"""Writes a tiny Llama with random weights as GGUF: `python tiny_gguf.py FILE`, where the gguf package is."""

from __future__ import annotations

import sys

import numpy as np
from gguf import GGUFWriter, TokenType

LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, CONTEXT = 2, 128, 256, 4, 2, 2048


def write_tiny_gguf(path: str) -> None:
    """Two layers, and a vocabulary of the 256 bytes and a few hundred made-up words."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256]
    more = [f"\u2581w{number}" for number in range(1000)]
    words += more
    types += [TokenType.NORMAL] * len(more)
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (0.02 * rng.standard_normal(shape)).astype(np.float32)

    out = GGUFWriter(path, "llama")
    out.add_context_length(CONTEXT)
    out.add_embedding_length(HIDDEN)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(INNER)
    out.add_head_count(HEADS)
    out.add_head_count_kv(KV_HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(HIDDEN // HEADS)
    out.add_vocab_size(len(words))
    out.add_tokenizer_model("llama")
    out.add_token_list(words)
    out.add_token_scores([0.0] * len(words))
    out.add_token_types(types)
    out.add_unk_token_id(0)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_add_bos_token(False)
    out.add_chat_template("{% for message in messages %}{{ message['content'] }} {% endfor %}")
    out.add_tensor("token_embd.weight", weights(len(words), HIDDEN))
    out.add_tensor("output_norm.weight", np.ones(HIDDEN, np.float32))
    out.add_tensor("output.weight", weights(len(words), HIDDEN))
    kv = HIDDEN // HEADS * KV_HEADS
    for layer in range(LAYERS):
        name = f"blk.{layer}"
        out.add_tensor(f"{name}.attn_norm.weight", np.ones(HIDDEN, np.float32))
        out.add_tensor(f"{name}.ffn_norm.weight", np.ones(HIDDEN, np.float32))
        out.add_tensor(f"{name}.attn_q.weight", weights(HIDDEN, HIDDEN))
        out.add_tensor(f"{name}.attn_k.weight", weights(kv, HIDDEN))
        out.add_tensor(f"{name}.attn_v.weight", weights(kv, HIDDEN))
        out.add_tensor(f"{name}.attn_output.weight", weights(HIDDEN, HIDDEN))
        out.add_tensor(f"{name}.ffn_gate.weight", weights(INNER, HIDDEN))
        out.add_tensor(f"{name}.ffn_up.weight", weights(INNER, HIDDEN))
        out.add_tensor(f"{name}.ffn_down.weight", weights(HIDDEN, INNER))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    write_tiny_gguf(sys.argv[1])
