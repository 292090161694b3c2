"""What bounds vLLM's scheduler in one launch: the flags and the KV blocks, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The scheduler's limits. `kv_blocks` is vLLM's num_gpu_blocks, one of which is never handed out.

    `reserve_full_sequence`: a request is admitted only when its whole current sequence fits the free blocks
    (vLLM 0.19 and later), else when its first chunk does. `host_blocks` is the size of the host's KV cache.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    kv_blocks: int
    max_model_len: int
    prefix_caching: bool = True
    chunked_prefill: bool = True
    async_scheduling: bool = True
    reserve_full_sequence: bool = True
    host_blocks: int = 0

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests can hold."""
        return max(self.kv_blocks - 1, 0)

    def serves(self, input_tokens: int, output_tokens: int) -> bool:
        """Whether vLLM accepts such a request (else it answers HTTP 400)."""
        return input_tokens + output_tokens <= self.max_model_len

    def completes(self, input_tokens: int, output_tokens: int) -> bool:
        """Whether it can ever end: the KV blocks hold it whole, and so does the budget without chunks."""
        tokens = input_tokens + output_tokens - 1
        return -(-tokens // self.block_size) <= self.usable_blocks and (
            self.chunked_prefill or tokens <= self.max_num_batched_tokens
        )
