"""Failures of the model's files, and models that this vLLM or this GPU cannot run."""

from __future__ import annotations

from tuner.engines.base import FailureKind
from tuner.engines.vllm.logs.pattern import GENERAL, pattern, quoted, says

_FILES, _MODEL = FailureKind.MODEL_FILES, FailureKind.MODEL_UNSUPPORTED
_OFFLINE = (
    "fetch the model beforehand, or give a folder that holds config.json, the tokenizer and the weights"
)
_TOKEN = "accept the model's licence on its page and set HF_TOKEN, or give a folder with the model"  # noqa: S105

PATTERNS = (
    pattern(
        _FILES,
        ("gated repo", "GatedRepoError", "401 Client Error", "403 Client Error"),
        r"gated repo|GatedRepoError|40[13] Client Error",
        says("the model's page refuses access: it is gated, or the token is missing", _TOKEN),
    ),
    pattern(
        _FILES,
        (
            "RepositoryNotFound",
            "is not a local folder",
            "404 Client Error",
            "RevisionNotFound",
            "EntryNotFoundError",
            "Repository Not Found",
        ),
        r"(?<![\w.])(?P<name>\S+) is not a local folder and is not a valid model identifier"
        r"|RepositoryNotFoundError"
        r"|Repository Not Found|RevisionNotFoundError|(?<!Local)EntryNotFoundError|404 Client Error",
        says(
            "the model, or a file of it, is not where the name points {name}",
            "check the model's name; " + _OFFLINE,
        ),
    ),
    pattern(
        _FILES,
        (
            "LocalEntryNotFound",
            "couldn't connect to",
            "outgoing traffic has been disabled",
            "OfflineModeIsEnabled",
            "annot find the requested files",
            "Cannot find an appropriate cached snapshot",
        ),
        r"LocalEntryNotFoundError|couldn't connect to|outgoing traffic has been disabled"
        r"|OfflineModeIsEnabled"
        r"|[Cc]annot find the requested files|appropriate cached snapshot",
        says("the model is not on this machine and cannot be fetched", _OFFLINE),
    ),
    pattern(
        _FILES,
        ("does not appear to have a file named", "o file named"),
        r"(?P<model>\S+) does not appear to have (?:a file|files) named (?P<file>[^\s,]+)",
        says("{model} has no file {file}", _OFFLINE),
    ),
    pattern(
        _FILES,
        (
            "any model weights",
            "ny weights file",
            "model weights found",
            "index.json",
            "Invalid repository ID",
        ),
        r"Cannot find any model weights with (?P<where>\S+)|(?:No|Cannot find any) (?:safetensors"
        r"|weights?) files? (?:were )?found"
        r"|Invalid repository ID or local directory",
        says("the folder holds no weights {where}", _OFFLINE),
    ),
    pattern(
        _FILES,
        (
            "rror while deserializing header",
            "afetensorError",
            "HeaderTooLarge",
            "MetadataIncompleteBuffer",
            "PytorchStreamReader",
            "invalid load key",
        ),
        r"[Ee]rror while deserializing header|SafetensorError|HeaderTooLarge|MetadataIncompleteBuffer"
        r"|PytorchStreamReader failed|invalid load key",
        says(
            "a weights file is damaged or not whole",
            "fetch the weights again (a pointer file of git-lfs is no weights file)",
        ),
    ),
    pattern(
        _FILES,
        (
            "ot a valid JSON file",
            "Repo id must",
            "HFValidationError",
            "an't load tokenizer",
            "an't load the configuration",
            "alidate_repo_id",
            "nable to load vocabulary",
        ),
        r"(?P<text>It looks like the config file at \S+ is not a valid JSON file|Repo id must [^\n]*"
        r"|HFValidationError[^\n]*"
        r"|Can't load (?:tokenizer|the configuration)[^\n.]*|Unable to load vocabulary[^\n.]*)",
        quoted("check the model's path: " + _OFFLINE),
    ),
    pattern(
        _FILES,
        ("No such file or directory", "Permission denied", "Is a directory"),
        r"(?:FileNotFoundError|PermissionError|NotADirectoryError|IsADirectoryError): (?P<text>\[Errno "
        r"\d+\] [^\n]*"
        r"(?:config\.json|\.safetensors|tokenizer|\.bin|huggingface|/hub|/models?/|\.gguf)[^\n]*)",
        quoted("check the model's path and its permissions"),
    ),
    pattern(
        _FILES,
        (
            "ConnectionError",
            "MaxRetryError",
            "NameResolutionError",
            "ReadTimeout",
            "ConnectTimeout",
            "ProxyError",
        ),
        r"(?:HTTPSConnectionPool|MaxRetryError|NameResolutionError|ConnectTimeout|ReadTimeout"
        r"|ProxyError)[^\n]{0,200}"
        r"(?:huggingface|hf-mirror|modelscope|xethub|cdn-lfs)",
        says("the model's host cannot be reached", _OFFLINE),
        rank=GENERAL,
    ),
    pattern(
        _FILES,
        "No space left on device",
        r"(?:hub|download|xet|snapshot|blobs|huggingface)[^\n]{0,200}No space left on device"
        r"|No space left on device[^\n]{0,200}(?:hub|download|snapshot|blobs|huggingface)",
        says("the disk is full while the model is fetched", "free space, or move the cache with HF_HOME"),
    ),
    pattern(
        _MODEL,
        ("odel architectures", "odel architecture "),
        r"Model architectures? \[?(?P<names>[^\]\n]{1,120}?)\]? (?:are|is) not supported(?: for now)?"
        r"|Model architectures? "
        r"\[(?P<failed>[^\]]*)\] failed to be inspected",
        says(
            "this vLLM does not know the architecture {names}{failed}", "take a newer vLLM, or another model"
        ),
    ),
    pattern(
        _MODEL,
        (
            "not recognize this architecture",
            "nrecognized model in",
            "nrecognized configuration class",
            "should have a `model_type` key",
            "has no vLLM implementation",
            "no vLLM implementation",
        ),
        r"(?:model type `(?P<name>[\w.-]+)` but )?Transformers does not recognize this architecture"
        r"|Unrecognized model in \S+"
        r"|Unrecognized configuration class|should have a `model_type` key|has no vLLM implementation|no "
        r"vLLM implementation",
        says(
            "transformers does not know this model's type {name}",
            "take newer vLLM and transformers, or another model",
        ),
    ),
    pattern(
        _MODEL,
        "trust_remote_code",
        r"trust_remote_code=True` to allow custom code|set the option `trust_remote_code=True`|[Pp]lease "
        r"(?:pass|set)[^\n]{0,40}"
        r"trust_remote_code|contains custom code which must be executed",
        says(
            "the model brings its own code, which may only run when it is allowed to",
            "set trust-remote-code if you trust the model",
        ),
    ),
    pattern(
        _MODEL,
        "inimum capability",
        r"(?:quantization method (?P<method>\S+) is )?not supported for the current GPU\.? *Minimum "
        r"capability: (?P<need>\d+)\.? *"
        r"Current capability: (?P<have>\d+)",
        says(
            "quantization {method} needs compute capability {need}, and this GPU has {have}",
            "take a model in another quantization, or a newer GPU",
        ),
    ),
    pattern(
        _MODEL,
        ("ompute capability", "float16 is only supported"),
        r"(?P<text>[Bb]float16 is only supported on GPUs with compute capability of at least [^\n]{0,120})",
        quoted("set dtype to half, or take a newer GPU"),
    ),
    pattern(
        _MODEL,
        "fp8e4nv",
        r"type fp8e4nv not supported in this architecture",
        says(
            "this GPU has no FP8 arithmetic of this kind (e4m3)",
            "leave kv-cache-dtype to vLLM; FP8 weights need capability 89",
        ),
    ),
    pattern(
        _MODEL,
        ("nknown quantization method", "uantization method", "ot supported on this", "oes not support"),
        r"(?P<text>Unknown quantization method[^\n]*|[Qq]uantization (?:method )?\S+ is not (?:currently "
        r")?supported[^\n]*"
        r"|\S+ quantization is (?:currently )?not (?:fully )?supported[^\n]*|No compatible \S+ (?:kernel"
        r"|scheme)[^\n]*"
        r"|Failed to find a kernel that can implement[^\n]*|\w+ does not support (?:tensor|pipeline|LoRA"
        r"|quantization)[^\n]*)",
        quoted("take a model in a quantization that this GPU and this vLLM run"),
        rank=GENERAL,
    ),
    pattern(
        _MODEL,
        ("no module or parameter named", "were not initialized from checkpoint", "ollowing weights were not"),
        r"(?P<text>There is no module or parameter named [^\n]*|Following weights were not initialized "
        r"from checkpoint[^\n]*)",
        quoted(
            "the checkpoint is not of the architecture that its config.json names: check the files, or "
            "take another vLLM"
        ),
    ),
    pattern(
        _MODEL,
        ("okenizer class", "ailed to load the tokenizer", "nstantiate the backend tokenizer"),
        r"(?P<text>Couldn't instantiate the backend tokenizer[^\n]*|Tokenizer class \S+ does not "
        r"exist[^\n]*|Failed to load the tokenizer[^\n]*)",
        quoted(
            "take the transformers version that the model asks for, or set trust-remote-code if you trust "
            "the model"
        ),
    ),
    pattern(
        _MODEL,
        ("does not support", "not a multimodal model", "not support the"),
        r"(?P<text>The model does not support [^\n]*|This model does not support [^\n]*task[^\n]*)",
        quoted("take another model, or another task"),
        rank=GENERAL,
    ),
)
