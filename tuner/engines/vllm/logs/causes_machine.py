"""Failures of the machine: driver, ports, shared memory, processes that were killed."""

from __future__ import annotations

from tuner.engines.base import FailureKind
from tuner.engines.vllm.logs.pattern import CONSEQUENCE, GENERAL, Explained, Found, pattern, quoted, says

_DRIVER, _PORT, _SHM = FailureKind.DRIVER, FailureKind.PORT, FailureKind.SHARED_MEMORY
_HOST, _DEAD = FailureKind.HOST_MEMORY, FailureKind.ENGINE_DEAD
_SHM_MEND = "give /dev/shm more room (docker run --ipc=host or --shm-size 16g)"
_NCCL_MEND = (
    "set NCCL_DEBUG=INFO to see what failed; most often /dev/shm is too small (docker run --ipc=host or "
    "--shm-size 16g), "
    "or the GPUs cannot reach each other (NCCL_P2P_DISABLE=1, --disable-custom-all-reduce)"
)


def _killed(found: Found) -> Explained:
    return Explained(
        f"a process was killed (SIGKILL) while {found.phase or 'loading'}: nearly always the host ran out "
        f"of memory",
        "look into the kernel's log (dmesg), and give the host or the container more memory",
    )


PATTERNS = (
    pattern(
        _DRIVER,
        ("driver", "Driver"),
        r"CUDA driver version is insufficient|NVIDIA driver on your system is too old(?: \(found version "
        r"(?P<found>\d+)\))?"
        r"|driver version is too old|cudaErrorInsufficientDriver|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|system "
        r"has unsupported display driver"
        r"|Driver/library version mismatch|requires a newer (?:NVIDIA|CUDA) driver",
        says(
            "the NVIDIA driver is older than the CUDA that this torch was built for",
            "update the driver, or install a torch and vLLM for the CUDA of this driver",
        ),
        quiet=True,
    ),
    pattern(
        _DRIVER,
        ("no kernel image", "not compatible with the current PyTorch", "named symbol not found"),
        r"no kernel image is available|is not compatible with the current PyTorch installation|named "
        r"symbol not found",
        says(
            "this torch or vLLM has no code for this GPU",
            "install a torch and vLLM built for this GPU's compute capability",
        ),
        quiet=True,
    ),
    pattern(
        _DRIVER,
        ("forward compatibility", "PTX", "sm_"),
        r"forward compatibility was attempted|PTX was compiled with an unsupported toolchain|ptxas fatal"
        r"|Value 'sm_\w+' is not defined",
        says(
            "CUDA toolkit, driver and GPU do not match",
            "use the CUDA that the driver supports, and a toolkit that knows this GPU",
        ),
    ),
    pattern(
        _DRIVER,
        ("ailed to infer device type", "Device string must not be empty"),
        r"Failed to infer device type|Device string must not be empty",
        says(
            "vLLM found no device that it can run on",
            "check nvidia-smi, the driver, and that this vLLM is built for this kind of device",
        ),
    ),
    pattern(
        _DRIVER,
        (
            "No CUDA GPUs",
            "NVIDIA driver",
            "no CUDA-capable device",
            "cudaErrorNoDevice",
            "No GPUs found",
            "No HIP GPUs",
        ),
        r"No (?:CUDA|HIP) GPUs are available|Found no NVIDIA driver|no CUDA-capable device is detected"
        r"|cudaErrorNoDevice",
        says("no GPU is visible", "check nvidia-smi, CUDA_VISIBLE_DEVICES, and for a container --gpus all"),
    ),
    pattern(
        _DRIVER,
        ("cannot open shared object file", "undefined symbol", "not found (required by"),
        r"(?P<text>(?:libcuda|libcudart|libnvidia|libcublas|libnccl|libcudnn|libnvrtc|libtorch|libc10"
        r"|libamdhip)\S*: cannot open "
        r"shared object file|\S*(?:vllm|torch|flash_attn|flashinfer)\S*: undefined symbol: \S+|version "
        r"`\S+' not found \(required by [^\n]*)",
        quoted(
            "vLLM, torch and CUDA do not fit each other: install them together, or set LD_LIBRARY_PATH right"
        ),
    ),
    pattern(
        _DRIVER,
        (
            "cudaGetDeviceCount",
            "CUDA unknown error",
            "system not yet initialized",
            "NVML",
            "nvidia-container",
            "could not select device driver",
            "fallen off the bus",
            "cuInit",
        ),
        r"Unexpected error from cudaGetDeviceCount|CUDA unknown error|system not yet initialized|NVML "
        r"Shared Library Not Found"
        r"|NVMLError_(?:LibraryNotFound|DriverNotLoaded)|Failed to initialize NVML|nvidia-container-cli: "
        r"|could not select device driver"
        r"|fallen off the bus|cuInit[^\n]{0,40}fail",
        says(
            "the CUDA driver does not answer",
            "check nvidia-smi (and for NVSwitch machines the fabric manager); a container needs the NVIDIA "
            "container toolkit",
        ),
    ),
    pattern(
        _PORT,
        (
            "ddress already in use",
            "EADDRINUSE",
            "rrno 98",
            "annot assign requested address",
            "rrno 99",
            "error while attempting to bind",
        ),
        r"^(?!.*(?:ConnectionPool|NewConnectionError)).*?(?:[Aa]ddress already in use|EADDRINUSE"
        r"|\[Errno 9[89]\]|[Cc]annot assign requested address|error while attempting to bind on address)",
        says(
            "the port is taken, or the address is not of this machine",
            "take another port (--port), or stop the server that holds it",
        ),
        always=True,
    ),
    pattern(
        _SHM,
        ("shared memory", "shm", "osix_fallocate", "Bus error", "SIGBUS"),
        r"[Ee]rror while creating shared memory segment|unable to (?:allocate|open|mmap|write to) (?:\w+ "
        r")?shared memory"
        r"|posix_fallocate failed|/dev/shm[^\n]{0,200}No space left|No space left[^\n]{0,200}(?:/dev/shm"
        r"|psm_|shm)"
        r"|\bBus error\b|SIGBUS|insufficient shared memory|out of shared memory \(shm\)"
        r"|shm_open[^\n]{0,80}(?:fail|denied|No space)",
        says("the memory that the processes share, /dev/shm, is too small or not usable", _SHM_MEND),
        death=True,
    ),
    pattern(
        _SHM,
        ("NCCL", "nccl", "DistBackendError", "custom_all_reduce"),
        r"(?P<text>Failed: Cuda error \S*custom_all_reduce[^\n]{0,100}|NCCL error(?: in)?: [^\n]{0,200}"
        r"|ncclSystemError[^\n]{0,160}"
        r"|ncclUnhandledCudaError[^\n]{0,160}|ncclInternalError"
        r"[^\n]{0,160}|ncclInvalidUsage[^\n]{0,160}|ncclRemoteError[^\n]{0,160}|NCCL Error \d+: "
        r"[^\n]{0,120})",
        quoted(_NCCL_MEND, "the GPUs cannot talk to each other: "),
        rank=GENERAL,
    ),
    pattern(
        _HOST,
        ("SIGKILL", "137", "-9", "Killed", "signal 9", "signal: 9", "signal: killed"),
        r"died with <?Signals\.SIGKILL|(?<!sending )SIGKILL|(?:exit(?:ed)?(?: with)?(?: code| status)?:? ?"
        r"|code="
        r"|ExitCode\S*? |rc=)137\b"
        r"|exit ?code[ :=]+-9\b|'\w+': -9\b|(?:^|[\s\"'])Killed(?: {2,}.*|\s*$|\"|')|signal:? (?:9\b"
        r"|killed)|Killed: 9",
        _killed,
        rank=GENERAL,
        death=True,
        quiet=True,
    ),
    pattern(
        FailureKind.UNKNOWN,
        "o many open files",
        r"Too many open files",
        says("the limit on open files is too low", "raise it: ulimit -n 65536"),
    ),
    pattern(
        FailureKind.UNKNOWN,
        "No space left on device",
        r"No space left on device",
        says("a disk is full", "free space on the disk of the cache (HF_HOME, ~/.cache/vllm) and of /tmp"),
        rank=GENERAL,
    ),
    pattern(
        FailureKind.UNKNOWN,
        ("ailed to find C compiler", "ould not find nvcc", "ninja"),
        r"Failed to find C compiler|Could not find nvcc|Ninja is required|Ninja build failed|nvcc: "
        r"(?:command )?not found",
        says(
            "a kernel cannot be compiled: the compiler is missing or failed",
            "install gcc and the CUDA toolkit, or set VLLM_USE_FLASHINFER_SAMPLER=0",
        ),
        rank=GENERAL,
    ),
    pattern(
        _DEAD,
        (
            "illegal memory access",
            "CUDA error",
            "HIP error",
            "cudaError",
            "AcceleratorError",
            "device-side assert",
        ),
        r"(?P<text>(?:CUDA|HIP) error: [^\n]{0,120}|an illegal memory access was encountered|device-side "
        r"assert triggered|CUDA_ERROR_\w+"
        r"|cudaError(?:IllegalAddress|LaunchFailure|ECCUncorrectable)\w*)",
        quoted(
            "a kernel failed on the GPU: try enforce-eager, another attention backend, or another vLLM; "
            "dmesg shows a fault of the card (Xid)"
        ),
        rank=GENERAL,
    ),
    pattern(
        _DEAD,
        ("Segmentation fault", "Segfault", "SIGSEGV", "code -11", "core dumped", "SIGABRT", "-6"),
        r"Segmentation fault|Segfault encountered|SIGSEGV|exit ?code[ :=]+-(?:11|6)\b|SIGABRT|\(core "
        r"dumped\)|'\w+': -(?:11|6)\b",
        says(
            "a process crashed in native code",
            "try another vLLM, or enforce-eager; the lines above name the library",
        ),
        rank=GENERAL,
        death=True,
    ),
    pattern(
        FailureKind.HUNG,
        ("shared memory broadcast block", "collective operation timeout", "RPC call to", "Watchdog caught"),
        r"No available shared memory broadcast block found in (?P<s>\d+) second|Watchdog caught collective "
        r"operation timeout"
        r"|RPC call to (?P<call>\w+) timed out",
        says(
            "the workers stopped answering",
            "one rank hangs: look at its last line; NCCL_DEBUG=INFO and py-spy show where",
        ),
        rank=GENERAL,
        death=False,
        quiet=False,
    ),
    pattern(
        FailureKind.STARTUP_TIMEOUT,
        ("imed out", "timed out", "in time", "did not start"),
        r"[Tt]imed out (?:waiting for (?:engine|clients|engines)|after \d+ ?(?:s|sec|seconds|ms) waiting)"
        r"|client socket has timed out"
        r"|(?:did not|failed to) (?:start|become ready|initialize) (?:in|within)[^\n]{0,40}|DistStoreError"
        r"|Did not receive response from front-end",
        says(
            "a process did not become ready in the time it was given",
            "give it more time (VLLM_ENGINE_READY_TIMEOUT_S), or look at the last line of the slow process",
        ),
        rank=CONSEQUENCE,
    ),
)
