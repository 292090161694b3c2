"""Logs of failed and healthy servers, written after the forms in which vLLM, torch and the kernel report.

Each text is a log of its own making; numbers beside it name public vLLM issues with logs of that kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Text:
    """A log, the kind it must give, the bounds it teaches, and words its cause must hold."""

    name: str
    kind: str | None
    log: str
    bound: dict[str, dict[str, float]] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    figures: dict[str, object] = field(default_factory=dict)


def core(
    text: str, place: str = "core.py:708", source: str = "EngineCore_DP0 pid=311", level: str = "ERROR"
) -> str:
    """Lines as a V1 process logs them."""
    return "\n".join(f"({source}) {level} 10-08 20:33:48 [{place}] {line}" for line in text.split("\n"))


def info(text: str, source: str = "EngineCore_DP0 pid=311", at: str = "20:33:40") -> str:
    """INFO lines of a V1 process."""
    return "\n".join(f"({source}) INFO 10-08 {at} [gpu_worker.py:298] {line}" for line in text.split("\n"))


BANNER = "(APIServer pid=77) INFO 10-08 20:33:01 [api_server.py:1839] vLLM API server version 0.11.0"
WRAPPER = """(APIServer pid=77) Traceback (most recent call last):
(APIServer pid=77)   File "/x/vllm/v1/engine/utils.py", line 789, in wait_for_engine_startup
(APIServer pid=77)     raise RuntimeError("Engine core initialization failed. "
(APIServer pid=77) RuntimeError: Engine core initialization failed. See root cause above. \
Failed core proc(s): {}"""
TRACE = """EngineCore failed to start.
Traceback (most recent call last):
  File "/opt/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 699, in run_engine_core
    engine_core = EngineCoreProc(*args, **kwargs)
                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^"""
READY = """INFO 10-08 20:33:01 [api_server.py:1839] vLLM API server version 0.11.0
INFO 10-08 20:33:50 [gpu_worker.py:298] Available KV cache memory: 20.50 GiB
INFO 10-08 20:33:51 [kv_cache_utils.py:1087] GPU KV cache size: 149,264 tokens
INFO 10-08 20:33:55 [api_server.py:1912] Starting vLLM API server 0 on http://0.0.0.0:8000
INFO:     Started server process [77]
INFO:     Waiting for application startup.
INFO:     Application startup complete."""


def failed(cause: str, *before: str) -> str:
    """A start that fails in the engine core with this exception, its wrapper behind it."""
    return "\n".join((BANNER, *before, core(f"{TRACE}\n{cause}"), "Process EngineCore_DP0:", cause, WRAPPER))


def statistics(running: int, waiting: int, output_tps: float) -> str:
    """What a server says every ten seconds."""
    return (
        "\nINFO 10-08 20:40:00 [loggers.py:127] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg "
        f"generation throughput: {output_tps} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, "
        "GPU KV cache usage: 0.0%"
    )


OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 2 has a total capacity of "
    "79.25 GiB "
    "of which 1.10 GiB is free. Including non-PyTorch memory, this process has 78.14 GiB memory in use."
)

MEMORY = [
    Text(
        "kv_memory_v1",  # 17431
        "kv_memory",
        failed(
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` "
            "when "
            "initializing the engine.",
            "INFO 10-08 20:33:02 [utils.py:233] non-default args: {'model': 'm', 'gpu_memory_utilization': "
            "0.4}",
            info("Available KV cache memory: -1.25 GiB"),
        ),
        {"gpu-memory-utilization": {"min": 0.401}},
        ("-1.25", "0.4"),
    ),
    Text(
        "kv_memory_v0",  # 10439, 13882
        "kv_memory",
        "INFO 02-26 09:54:02 model_runner.py:1115] Loading model weights took 5.2032 GB\n"
        "INFO 02-26 09:54:05 worker.py:267] the current vLLM instance can use total_gpu_memory (8.00GiB) x "
        "gpu_memory_utilization (0.70) = 5.60GiB\n"
        "INFO 02-26 09:54:05 worker.py:267] model weights take 5.20GiB; non_torch_memory takes 0.03GiB; "
        "PyTorch "
        "activation peak memory takes 1.42GiB; the rest of the memory reserved for KV Cache is -1.05GiB.\n"
        "INFO 02-26 09:54:05 executor_base.py:111] # cuda blocks: 0, # CPU blocks: 4681\n"
        '[rank0]:   File "/x/vllm/worker/worker.py", line 493, in raise_if_cache_size_invalid\n'
        '[rank0]:     raise ValueError("No available memory for the cache blocks. "\n'
        "[rank0]: ValueError: No available memory for the cache blocks. Try increasing "
        "`gpu_memory_utilization`",
        {"gpu-memory-utilization": {"min": 0.8313}},
        figures={"weights_gib": 5.2032},
    ),
    Text(
        "model_len_estimate",  # 2418, 34076
        "model_len",
        failed(
            "ValueError: To serve at least one request with the models's max seq len (40960), (5.62 GiB KV "
            "cache is "
            "needed, which is larger than the available KV cache memory (4.50 GiB). Based on the available "
            "memory, the "
            "estimated maximum model length is 32768. Try increasing `gpu_memory_utilization`."
        ),
        {"max-model-len": {"max": 32768}},
        ("40960", "5.62", "4.5"),
    ),
    Text(
        "model_len_wrapped_over_lines",
        "model_len",
        core(
            "ValueError: \nTo serve at least one request with the model's max seq len (40960), \n(5.62 GiB "
            "KV cache is "
            "needed, which is larger than the available KV cache memory (4.50 GiB). \nBased on the "
            "available memory, "
            "the estimated maximum model length is 32768. "
        ),
        {"max-model-len": {"max": 32768}},
    ),
    Text(
        "model_len_without_estimate",
        "model_len",
        failed(
            "ValueError: To serve at least one request with the models's max seq len (100000), (12.5 GiB "
            "KV cache is "
            "needed, which is larger than the available KV cache memory (6.25 GiB)."
        ),
        {"max-model-len": {"max": 50241}},
    ),
    Text(
        "model_len_v0",  # 2418
        "model_len",
        "INFO 06-28 06:11:45 distributed_gpu_executor.py:45] # GPU blocks: 459, # CPU blocks: 1638\n"
        "Traceback (most recent call last):\n"
        '  File "/x/vllm/worker/worker.py", line 353, in raise_if_cache_size_invalid\n'
        "    raise ValueError(\n"
        "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can "
        "be stored in "
        "KV cache (7344). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`.",
        {"max-model-len": {"max": 7344}},
        figures={"kv_tokens": 7344},
    ),
    Text(
        "model_len_over_the_models_own",  # 3676
        "model_len",
        "(APIServer pid=1) pydantic_core._pydantic_core.ValidationError: 1 validation error for "
        "ModelConfig\n"
        "(APIServer pid=1)   Value error, User-specified max_model_len (131072) is greater than the "
        "derived "
        "max_model_len (max_position_embeddings=32768 or model_max_length=None in model's config.json). To "
        "allow "
        "overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 [type=value_error, "
        "input_value=ArgsKwargs((), {'model': 'm'}), input_type=ArgsKwargs]\n"
        "(APIServer pid=1)     For further information visit "
        "https://errors.pydantic.dev/2.12/v/value_error",
        {"max-model-len": {"max": 32768}},
    ),
    Text(
        "model_len_without_bracket",
        "model_len",
        core(
            "ValueError: To serve at least one request with the model's max seq len (1048576), 7.89 GiB KV "
            "cache is "
            "needed, which is larger than the available KV cache memory (4.0 GiB). Based on the available "
            "memory, the "
            "estimated maximum model length is 530432."
        ),
        {"max-model-len": {"max": 530432}},
        ("1048576", "7.89"),
    ),
    Text(
        "model_len_wrapped_at_80_columns",
        "model_len",
        "ValueError: To serve at least one request with the models's max seq len (1280),\n(0.18 GiB KV "
        "cache is needed, "
        "which is larger than the available KV cache\nmemory (0.10 GiB). Based on the available memory, "
        "the estimated "
        "maximum model\nlength is 736. Try increasing `gpu_memory_utilization` or decreasing",
        {"max-model-len": {"max": 736}},
        ("1280", "0.18", "0.1"),
    ),
    Text(
        "gpu_busy_wrapped_at_80_columns",
        "gpu_busy",
        "ValueError: Free memory on device cuda:0 (1.12/11.63 GiB) on startup is less\nthan desired GPU "
        "memory "
        "utilization (0.9, 10.47 GiB)",
        {"gpu-memory-utilization": {"max": 0.0963}},
        ("0.9", "10.47"),
    ),
    Text(
        "cpu_busy",
        "host_memory",
        failed(
            "ValueError: Available memory on node 0 (4.85/18.0 GiB) on startup is less than desired CPU "
            "memory "
            "utilization (0.92, 16.56 GiB). On the CPU backend, the `--gpu-memory-utilization` flag "
            "controls it."
        ),
        {"gpu-memory-utilization": {"max": 0.2694}},
    ),
    Text(
        "gpu_busy",  # 20305, 25837
        "gpu_busy",
        failed(
            "ValueError: Free memory on device (14.32/23.99 GiB) on startup is less than desired GPU "
            "memory "
            "utilization (0.9, 21.59 GiB). Decrease GPU memory utilization or reduce GPU memory used by "
            "other processes."
        ),
        {"gpu-memory-utilization": {"max": 0.5969}},
        ("14.32", "23.99"),
    ),
    Text(
        "state_blocks",
        "kv_memory",
        failed(
            "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (411). Each decode "
            "sequence requires one Mamba cache block, so CUDA graph capture cannot proceed."
        ),
        {"max-num-seqs": {"max": 411}},
    ),
    Text(
        "gpu_busy_named_device",
        "gpu_busy",
        core(
            "ValueError: Free memory on device cuda:0 (2.0/80.0 GiB) on startup is less than desired GPU "
            "memory "
            "utilization (0.92, 73.6 GiB). Decrease GPU memory utilization.",
            source="Worker_TP3 pid=9",
        ),
        {"gpu-memory-utilization": {"max": 0.025}},
    ),
    Text(
        "memory_profiling",  # 55169
        "memory_profiling",
        failed(
            "AssertionError: Error in memory profiling. Initial free memory 55.61 GiB, current free memory "
            "70.46 GiB. "
            "This happens when other processes sharing the same container release GPU memory while vLLM is "
            "profiling."
        ),
    ),
    Text(
        "oom_sampler",  # 16118
        "oom",
        failed(
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. "
            "Please try "
            "lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
            info("GPU KV cache size: 10,000 tokens"),
        ).replace("RuntimeError: CUDA", OOM + "\nRuntimeError: CUDA"),
        {"max-num-seqs": {"max": 1023}},
    ),
    Text(
        "oom_while_loading",  # 14095, 31273
        "oom",
        "\n".join(
            (
                BANNER,
                info("Starting to load model meta-llama/Llama-3.1-70B..."),
                core("WorkerProc failed to start.\n" + OOM, "multiproc_executor.py:597", "Worker_TP2 pid=20"),
                core(
                    "Exception: WorkerProc initialization failed due to an exception in a background "
                    "process. See "
                    "stack trace for root cause."
                ),
                WRAPPER,
            )
        ),
        words=("loading the weights", "1.96 GiB"),
    ),
    Text(
        "oom_rocm",
        "oom",
        failed(
            "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total "
            "capacity"
        ),
    ),
    Text(
        "oom_bare_cuda",
        "oom",
        failed(
            "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"
        ),
    ),
    Text(
        "oom_through_nccl",
        "oom",
        core("gpu-3:120:980 [1] include/alloc.h:178 NCCL WARN Cuda failure 2 'out of memory'", level="ERROR")
        + "\n"
        + core("RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)"),
    ),
    Text(
        "oom_at_run_time",  # 20170
        "oom",
        READY
        + '\nINFO:     10.0.0.5:51234 - "POST /v1/completions HTTP/1.1" 200 OK\n'
        + core("EngineCore encountered a fatal error.\nTraceback (most recent call last):\n" + OOM)
        + "\n(APIServer pid=77) ERROR 10-08 20:40:02 [async_llm.py:480] "
        "vllm.v1.engine.exceptions.EngineDeadError: "
        "EngineCore encountered an issue. See stack trace (above) for the root cause.\n"
        'INFO:     10.0.0.5:51236 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error\n'
        "INFO:     Shutting down",
        words=("while serving",),
    ),
    Text(
        "host_memory_exit_code",
        "host_memory",
        "\n".join(
            (
                BANNER,
                info("Starting to load model big/model..."),
                "(EngineCore_DP0 pid=311) Loading safetensors checkpoint shards:  40% Completed | 12/30 "
                "[01:10<01:40]",
                WRAPPER.replace("{}", "{'EngineCore_DP0': -9}"),
            )
        ),
        words=("loading the weights",),
    ),
    Text(
        "host_memory_shell",
        "host_memory",
        info("Starting to load model x...") + "\nrun.sh: line 4:   812 Killed                  vllm serve x",
    ),
    Text(
        "host_memory_kernel",
        "host_memory",
        info("Starting to load model x...")
        + "\n[81234.554] Out of memory: Killed process 812 (VLLM::EngineCor) total-vm:212345678kB, "
        "anon-rss:98765432kB",
        words=("kernel",),
    ),
    Text(
        "host_memory_subprocess",
        "host_memory",
        info("Starting to load model x...")
        + "\nsubprocess.CalledProcessError: Command '['vllm', 'serve', 'x']' died with <Signals.SIGKILL: "
        "9>.",
    ),
    Text(
        "host_memory_container",
        "host_memory",
        info("Starting to load model x...") + "\nvllm-1 exited with code 137",
    ),
    Text(
        "host_memory_pod",
        "host_memory",
        info("Starting to load model x...")
        + "\n    Last State:  Terminated\n      Reason:    OOMKilled\n      Exit Code: 137",
    ),
    Text(
        "host_memory_allocator",
        "host_memory",
        failed(
            "RuntimeError: [enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't "
            "allocate memory: you "
            "tried to allocate 117440512 bytes. Error code 12 (Cannot allocate memory)"
        ),
    ),
    Text(
        "host_memory_ray",
        "host_memory",
        "(RayWorkerWrapper pid=90, ip=10.0.0.2) INFO 10-08 20:00:00 [x.py:1] Starting to load model x...\n"
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
    ),
]

FLAGS = [
    Text(
        "unknown_flag",
        "bad_flag",
        "usage: vllm serve [model_tag] [options]\nvllm serve: error: unrecognized arguments: --swap-space "
        "4 --use-v2-block-manager",
        words=("--swap-space", "--use-v2-block-manager"),
    ),
    Text(
        "invalid_int",
        "bad_flag",
        "usage: api_server.py [-h] [--model MODEL]\n"
        "api_server.py: error: argument --max-num-seqs: invalid int value: 'many'",
        words=("--max-num-seqs", "many"),
    ),
    Text(
        "invalid_choice",
        "bad_flag",
        "vllm serve: error: argument --block-size: invalid choice: 12 (choose from 1, 8, 16, 32, 64, 128)",
        words=("--block-size",),
    ),
    Text(
        "value_cannot_be_converted",
        "bad_flag",
        "vllm serve: error: argument --speculative-config/-sc: Value method:x cannot be converted to "
        "<function loads>",
        words=("--speculative-config", "method:x"),
    ),
    Text(
        "float16",
        "bad_flag",
        "ValueError: The model type 'gemma2' does not support float16. Reason: Numerical instability.",
    ),
    Text(
        "fp8_shards",
        "tensor_parallel",
        failed(
            "ValueError: Weight input_size_per_partition = 64 is not divisible by weight quantization "
            "block_k = 128."
        ),
    ),
    Text(
        "kv_dtype_with_mla",
        "attention_backend",
        "  Value error, nvfp4 KV cache is not supported with MLA (Multi-head Latent Attention) backends. "
        "[type=value_error]",
    ),
    Text("missing_model", "bad_flag", "x.py: error: the following arguments are required: --model"),
    Text(
        "batched_tokens_under_seqs",
        "bad_flag",
        "(APIServer pid=1) pydantic_core._pydantic_core.ValidationError: 1 validation error for "
        "SchedulerConfig\n"
        "(APIServer pid=1)   Value error, max_num_batched_tokens (512) must be greater than or equal to "
        "max_num_seqs "
        "(1024). [type=value_error, input_value=ArgsKwargs(...)]",
        {"max-num-batched-tokens": {"min": 1024}},
    ),
    Text(
        "batched_tokens_under_length",
        "bad_flag",
        "ValueError: max_num_batched_tokens (2048) is smaller than max_model_len (8192). This effectively "
        "limits the "
        "maximum sequence length to max_num_batched_tokens and makes vLLM reject longer sequences.",
        {"max-num-batched-tokens": {"min": 8192}},
    ),
    Text(
        "pydantic_field",
        "bad_flag",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for CacheConfig\n"
        "gpu_memory_utilization\n"
        "  Input should be less than or equal to 1 [type=less_than_equal, input_value=1.2, "
        "input_type=float]\n"
        "    For further information visit https://errors.pydantic.dev/2.11/v/less_than_equal",
        {"gpu-memory-utilization": {"max": 1}},
        ("gpu-memory-utilization",),
    ),
    Text(
        "utilization_old",
        "bad_flag",
        "ValueError: GPU memory utilization must be less than 1.0. Got 1.5.",
        {"gpu-memory-utilization": {"max": 1}},
        ("1.5",),
    ),
    Text(
        "pydantic_value_error",
        "bad_flag",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig\n"
        "  Value error, max_num_scheduled_tokens is set to -1792, which does not allow any tokens to be "
        "scheduled "
        "[type=value_error, input_value=ArgsKwargs((), {}), input_type=ArgsKwargs]",
        words=("-1792",),
    ),
    Text(
        "heads",
        "tensor_parallel",
        "ValueError: Total number of attention heads (52) must be divisible by tensor parallel size (8).",
        words=("52", "8"),
    ),
    Text(
        "too_few_gpus",
        "tensor_parallel",
        "ValueError: World size (8) is larger than the number of available GPUs (4) in this node. If this "
        "is intentional "
        "and you are using:\n- ray, set '--distributed-executor-backend ray'.",
        {"tensor-parallel-size": {"max": 4}},
    ),
    Text(
        "device_ordinal",
        "tensor_parallel",
        failed("torch.AcceleratorError: CUDA error: invalid device ordinal"),
    ),
    Text(
        "quantised_shards",  # 17569-like
        "tensor_parallel",
        failed(
            "ValueError: The output_size of gate's and up's weight = 192 is not divisible by weight "
            "quantization block_n "
            "= 128."
        ),
    ),
    Text(
        "rocm_world_size",
        "tensor_parallel",
        "RuntimeError: please ensure that world_size (2) is less than than max local gpu count (1)",
    ),
    Text(
        "no_backend_for_dtype",
        "attention_backend",
        failed(
            "ValueError: No valid attention backend found for cuda with "
            "AttentionSelectorConfig(head_size=576, "
            "dtype=torch.bfloat16, kv_cache_dtype=fp8, block_size=64, use_mla=True, has_sink=False). "
            "Reasons: "
            "{FLASH_ATTN_MLA: [compute capability not supported], TRITON_MLA: [kv_cache_dtype not "
            "supported]}."
        ),
        words=("fp8",),
    ),
    Text(
        "backend_by_name",
        "attention_backend",
        failed(
            "ValueError: Selected backend AttentionBackendEnum.FLASHMLA is not valid for this "
            "configuration. Reason: "
            "['compute capability not supported']"
        ),
    ),
    Text(
        "head_size",
        "attention_backend",
        failed(
            "ValueError: Head size 80 is not supported by PagedAttention. Supported head sizes are: [64, "
            "96, 128]"
        ),
    ),
    Text("block_sizes", "attention_backend", failed("ValueError: No common block size for 48.")),
    Text(
        "old_gpu",
        "attention_backend",
        failed("RuntimeError: FlashAttention only supports Ampere GPUs or newer."),
    ),
]

MODEL = [
    Text(
        "offline",
        "model_files",
        "huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file "
        "on the Hub and "
        "we cannot find the requested files in the local cache.\n\nThe above exception was the direct "
        "cause of the "
        "following exception:\n\nTraceback (most recent call last):\nOSError: We couldn't connect to "
        "'https://huggingface.co' to load the files, and couldn't find them in the cached files.",
    ),
    Text(
        "gated",
        "model_files",
        "OSError: You are trying to access a gated repo.\nMake sure to have access to it at "
        "https://huggingface.co/x/y.\n401 Client Error. (Request ID: Root=1-68)",
        words=("gated",),
    ),
    Text(
        "no_such_repo",
        "model_files",
        "OSError: modles/llama is not a local folder and is not a valid model identifier listed on "
        "'https://huggingface.co/models'",
        words=("modles/llama",),
    ),
    Text(
        "no_config",
        "model_files",
        "OSError: /data/model does not appear to have a file named config.json. Checkout "
        "'https://huggingface.co//data/"
        "model/tree/main' for available files.",
        words=("config.json",),
    ),
    Text(
        "damaged",  # 13899, 15445
        "model_files",
        failed(
            "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer"
        ),
    ),
    Text(
        "hub_out_of_reach",
        "model_files",
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max "
        "retries exceeded with url: /x (Caused by NewConnectionError('[Errno 99] Cannot assign requested "
        "address'))",
    ),
    Text(
        "no_weights", "model_files", failed("RuntimeError: Cannot find any model weights with `/data/model`")
    ),
    Text(
        "architecture",
        "model_unsupported",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, "
        "Model "
        "architectures ['KimiK9ForCausalLM'] are not supported for now. Supported architectures: "
        "dict_keys(['A'])"
        " [type=value_error]",
        words=("KimiK9ForCausalLM",),
    ),
    Text(
        "model_type",
        "model_unsupported",
        "  Value error, The checkpoint you are trying to load has model type `qwen9` but Transformers does "
        "not recognize "
        "this architecture. This could be because of an issue with the checkpoint. [type=value_error]",
        words=("qwen9",),
    ),
    Text(
        "remote_code",
        "model_unsupported",
        "ValueError: The repository x/y contains custom code which must be executed to correctly load the "
        "model. Please "
        "pass the argument `trust_remote_code=True` to allow custom code to be run.",
    ),
    Text(
        "quantisation_capability",
        "model_unsupported",
        failed(
            "ValueError: The quantization method fp8 is not supported for the current GPU. Minimum "
            "capability: 80. "
            "Current capability: 75."
        ),
        words=("fp8", "80", "75"),
    ),
    Text(
        "bfloat16",
        "model_unsupported",
        failed(
            "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your "
            "Tesla T4 GPU "
            "has compute capability 7.5."
        ),
    ),
    Text(
        "checkpoint_of_another_model",
        "model_unsupported",
        failed("ValueError: There is no module or parameter named 'vision_tower' in LlamaForCausalLM"),
    ),
]

MACHINE = [
    Text(
        "driver_too_old",
        "driver",
        failed(
            "RuntimeError: The NVIDIA driver on your system is too old (found version 12020). Please "
            "update your GPU driver"
        ),
    ),
    Text(
        "driver_insufficient",
        "driver",
        "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
    ),
    Text(
        "kernel_image",
        "driver",
        failed(
            "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device"
        ),
    ),
    Text(
        "device_type",  # 12847
        "driver",
        "INFO 10-08 14:35:22 [__init__.py:239] No platform detected, vLLM is running on "
        "UnspecifiedPlatform\n"
        "WARNING 10-08 14:35:22 _custom_ops.py:18] Failed to import from vllm._C with "
        "ImportError('libcuda.so.1: cannot "
        "open shared object file: No such file or directory')\n"
        "RuntimeError: Failed to infer device type, please set the environment variable "
        "`VLLM_LOGGING_LEVEL=DEBUG`",
    ),
    Text(
        "libcuda",
        "driver",
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
    ),
    Text(
        "abi",
        "driver",
        "ImportError: /opt/venv/lib/python3.12/site-packages/vllm/_C.abi3.so: undefined symbol: "
        "_ZN3c104cuda9SetDeviceEa",
    ),
    Text(
        "forward_compatibility",
        "driver",
        failed(
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility "
            "was attempted on "
            "non supported HW"
        ),
    ),
    Text("no_gpu", "driver", failed("RuntimeError: No CUDA GPUs are available")),
    Text(
        "port_taken",
        "port",
        "\n".join(
            (
                BANNER,
                "(APIServer pid=77)     sock.bind(addr)",
                "(APIServer pid=77) OSError: [Errno 98] Address already in use",
            )
        ),
    ),
    Text(
        "port_taken_after_start",
        "port",
        READY + "\nERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): "
        "address "
        "already in use\n"
        "INFO:     Waiting for application shutdown.\nINFO:     Application shutdown complete.",
    ),
    Text(
        "shm_small",  # 10453
        "shared_memory",
        "gpu:88:210 [1] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-AbC to "
        "33030532 bytes\n"
        "gpu:88:210 [1] misc/shmutils.cc:113 NCCL WARN Error while creating shared memory segment "
        "/dev/shm/nccl-AbC (size "
        "33030528)\n"
        + core("RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"),
        words=("/dev/shm",),
    ),
    Text(
        "nccl_plain",  # 20226, 25381
        "shared_memory",
        failed("RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)"),
    ),
    Text(
        "bus_error", "shared_memory", info("Starting to load model x...") + "\nFatal Python error: Bus error"
    ),
    Text(
        "shm_object",
        "shared_memory",
        failed("OSError: [Errno 28] No space left on device: '/dev/shm/psm_5030d6c2'"),
    ),
    Text(
        "illegal_access",  # 19483, 25032
        "engine_dead",
        READY
        + "\n"
        + core(
            "EngineCore encountered a fatal error.\nTraceback (most recent call last):\n"
            "torch.AcceleratorError: CUDA error: "
            "an illegal memory access was encountered"
        ),
        words=("illegal memory access",),
    ),
    Text(
        "died_at_run_time",  # 27549
        "engine_dead",
        READY
        + "\n(APIServer pid=77) ERROR 10-08 21:00:00 [core_client.py:564] Engine core proc EngineCore_DP0 "
        "died "
        "unexpectedly, shutting down client.",
    ),
    Text(
        "assertion_at_run_time",
        "engine_dead",
        READY
        + "\n"
        + core(
            "EngineCore encountered a fatal error.\nTraceback (most recent call last):\nAssertionError: "
            "num_tokens > 0"
        ),
        words=("num_tokens > 0",),
    ),
    Text(
        "background_loop",  # 5060, 7356
        "engine_dead",
        "INFO 06-22 20:00:00 metrics.py:341] Avg prompt throughput: 10.0 tokens/s, Avg generation "
        "throughput: 2.0 tokens/s\n"
        "ERROR 06-22 20:16:34 async_llm_engine.py:52] Engine background task failed\n"
        "ERROR 06-22 20:16:34 async_llm_engine.py:52] KeyError: 'req-7'\n"
        "vllm.engine.async_llm_engine.AsyncEngineDeadError: Background loop has errored already.",
        words=("req-7",),
    ),
    Text(
        "killed_while_serving",
        "engine_dead",
        READY
        + "\n(APIServer pid=77) ERROR 10-08 21:00:00 [multiproc_executor.py:223] Worker proc VllmWorker-1 "
        "died "
        "unexpectedly, shutting down executor.\nProcess died with exit code -9",
    ),
    Text(
        "workers_silent",  # 16841, 27313
        "hung",
        "\n".join(
            (
                BANNER,
                info("vLLM is using nccl==2.27.3", source="Worker_TP0 pid=12"),
                info(
                    "No available shared memory broadcast block found in 60 seconds. This typically "
                    "happens when some "
                    "processes are hanging or doing some time-consuming work (e.g. compilation)."
                ),
            )
        ),
    ),
    Text(
        "request_over_the_kv_cache",  # 39734
        "hung",
        READY + statistics(0, 1, 0.0) * 3,
        {"max-model-len": {"max": 149264}},
        ("149264",),
    ),
    Text("running_without_a_token", "hung", READY + statistics(3, 2, 0.0) * 6, words=("3 requests run",)),
    Text("slow_for_a_while", None, READY + statistics(3, 2, 0.0) * 5 + statistics(3, 2, 9.5)),
    Text("idle", None, READY + statistics(0, 0, 0.0) * 20),
    Text(
        "nccl_silent",
        "hung",
        "\n".join((BANNER, info("vLLM is using nccl==2.27.3", source="Worker_TP0 pid=12"))),
    ),
    Text(
        "rpc_at_run_time",  # 17965
        "hung",
        READY
        + "\n"
        + core(
            "EngineCore encountered a fatal error.\nTimeoutError\nTimeoutError: RPC call to execute_model "
            "timed out."
        ),
    ),
    Text(
        "startup_timeout",  # 48031
        "startup_timeout",
        "\n".join(
            (
                BANNER,
                info("Starting to load model x..."),
                "(APIServer pid=77) TimeoutError: Timed out waiting for engine core processes to start. "
                "This is often "
                "caused by slow weight loading for large models. Waited 600s (configured by "
                "VLLM_ENGINE_READY_TIMEOUT_S).",
            )
        ),
    ),
    Text(
        "cut_off",
        "startup_timeout",
        "\n".join((BANNER, info("Starting to load model x..."))),
        words=("loading the weights",),
    ),
    Text(
        "interrupted",
        "startup_timeout",
        "\n".join(
            (
                BANNER,
                info("Starting to load model x..."),
                "^CTraceback (most recent call last):",
                "KeyboardInterrupt",
            )
        ),
    ),
]

OTHER = [
    Text(
        "unknown_exception_is_named",
        "unknown",
        failed("KeyError: 'layers.0.mlp.experts.w13_weight'"),
        words=("KeyError", "w13_weight"),
    ),
    Text(
        "first_of_a_chain",
        "unknown",
        core(
            TRACE
            + "\nNotImplementedError: no such kernel\n\nDuring handling of the above exception, another "
            "exception "
            "occurred:\n\nTraceback (most recent call last):\nRuntimeError: Worker failed with error 'no "
            "such kernel', "
            "please check the stack trace above for the root cause"
        )
        + "\n"
        + WRAPPER,
        words=("NotImplementedError",),
    ),
    Text(
        "handled_error_before_the_true_one",
        "unknown",
        "ERROR 04-16 13:55:44 __init__.py:46] Failed to load plugin ascend\n"
        "ERROR 04-16 13:55:44 __init__.py:46] Traceback (most recent call last):\n"
        "ERROR 04-16 13:55:44 __init__.py:46] AttributeError: module 'x' has no attribute 'y'\n"
        + failed("ZeroDivisionError: division by zero"),
        words=("ZeroDivisionError",),
    ),
    Text(
        "resource_tracker_is_no_death",
        None,
        READY + "\n/x/resource_tracker.py:1: UserWarning: resource_tracker: process died unexpectedly, "
        "relaunching.",
    ),
    Text(
        "cause_only_in_the_wrapper",
        "unknown",
        core(
            "RuntimeError: Worker failed with error 'tensor of 512 rows', please check the stack trace above"
        ),
        words=("tensor of 512 rows",),
    ),
    Text(
        "custom_all_reduce",
        "shared_memory",
        info("Graph capturing started")
        + "\nFailed: Cuda error /workspace/csrc/custom_all_reduce.cuh:368 'invalid argument'",
    ),
    Text(
        "ready_without_uvicorns_lines",
        None,
        READY[: READY.index("INFO:     Started")],
        figures={"startup_s": 54.0},
    ),
    Text(
        "offline_prompts_done",
        None,
        BANNER + "\nProcessed prompts: 100%|##########| 4/4 [00:01<00:00]",
    ),
    Text(
        "retried_download_before_the_cause",
        "oom",
        "ERROR 10-08 20:33:20 [config.py:29] Error retrieving file list: 401 Client Error, retrying 1 of 2\n"
        + failed(OOM),
    ),
    Text(
        "module_missing",
        "unknown",
        failed("ModuleNotFoundError: No module named 'flashinfer_jit'\nRuntimeError: no sampler"),
        words=("flashinfer_jit",),
    ),
    Text("wrapper_alone", "unknown", BANNER + "\n" + WRAPPER, words=("no cause",)),
    Text("empty", "unknown", ""),
    Text("another_program", "unknown", "npm ERR! missing script: start\nmake: *** [all] Error 2\n"),
    Text(
        "another_programs_traceback",
        "unknown",
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\n'
        "lightning.fabric.utilities.exceptions.MisconfigurationException: no data",
        words=("MisconfigurationException",),
    ),
    Text(
        "compiler_missing",
        "unknown",
        failed("RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist"),
        words=("compile",),
    ),
    Text("ready", None, READY, figures={"kv_tokens": 149264, "startup_s": 54.0, "version": "0.11.0"}),
    Text(
        "ready_with_errors_of_requests",
        None,
        READY + "\nERROR 10-08 21:00:00 [serving_chat.py:195] Error in preprocessing prompt inputs\n"
        "ERROR 10-08 21:00:00 [serving_chat.py:195] ValueError: This model's maximum context length is "
        "8192 tokens.\n"
        'INFO:     10.0.0.5:1 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request',
    ),
    Text(
        "ready_and_stopped",
        None,
        READY + "\n(EngineCore pid=2) INFO 11-30 16:36:22 [core.py:1242] Shutdown initiated (timeout=0)\n"
        "(APIServer pid=1) ERROR 10-08 21:00:00 [core_client.py:564] Engine core proc EngineCore_DP0 died "
        "unexpectedly",
    ),
    Text(
        "debug_line_of_success",
        "startup_timeout",
        BANNER
        + "\n(EngineCore_DP0 pid=3) DEBUG 10-08 20:33:48 [utils.py:345] Free memory on device (139.2/139.8 "
        "GiB) on startup. "
        "Desired GPU memory utilization is (0.9, 125.8 GiB).",
    ),
    Text("only_requests", None, 'INFO:     10.0.0.5:1 - "POST /v1/completions HTTP/1.1" 200 OK'),
    Text("restarted_after_failure", None, failed("ValueError: x") + "\n" + READY),
    Text(
        "crash_loop_cut_off",
        "gpu_busy",
        failed(
            "ValueError: Free memory on device (1.0/80.0 GiB) on startup is less than desired GPU memory "
            "utilization (0.9, 72.0 GiB)."
        )
        + "\n"
        + BANNER,
        {"gpu-memory-utilization": {"max": 0.0125}},
    ),
]

TEXTS = [*MEMORY, *FLAGS, *MODEL, *MACHINE, *OTHER]
