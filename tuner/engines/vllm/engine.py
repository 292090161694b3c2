"""The real engine: vLLM servers on this machine, one at a time."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

from tuner.engines.base import FailureKind, LaunchFailure, Phase
from tuner.engines.vllm import environment, facts, gpu_memory
from tuner.engines.vllm.launchers import (
    Command,
    LauncherKind,
    Template,
    plain_template,
    template_version,
)
from tuner.engines.vllm.limits import Limits
from tuner.engines.vllm.log_tail import read_tail
from tuner.engines.vllm.owner import Owner, clear_leftovers
from tuner.engines.vllm.ports import free_port
from tuner.engines.vllm.process import Child, Handle
from tuner.engines.vllm.ready import Watched, wait_ready
from tuner.engines.vllm.running import Running
from tuner.engines.vllm.server import VllmServer
from tuner.engines.vllm.warm import WarmLauncher, WarmUnavailable
from tuner.errors import BadRequest, EngineUnavailable
from tuner.hardware import Gpu, Platform
from tuner.models import find_model, has_weights
from tuner.replay import ClientOptions
from tuner.space import (
    FlagTable,
    Installed,
    LaunchConfig,
    effective_defaults,
    find_vllm,
    installed_flag_table,
    to_argv,
)
from tuner.spec import FlagValue

SERVER_MARKER = "KIMI_TUNE_SERVER"
_KINDS = {LauncherKind.AUTO, LauncherKind.WARM, LauncherKind.PLAIN}
_TRIES = 3
_FORK_FAULT = re.compile(r"forked subprocess|cannot fork|after fork|fork\(\)", re.IGNORECASE)
_STARTUP_GUESS_S = {LauncherKind.WARM: 20.0, LauncherKind.PLAIN: 75.0, LauncherKind.TEMPLATE: 90.0}


class VllmEngine:
    """Starts vLLM servers for one model; each in its own session, on its own port, under its own name."""

    name = "vllm"
    deterministic = False

    def __init__(
        self,
        installed: Installed | None,
        *,
        model: str,
        gpu: Gpu,
        launcher: LauncherKind | str = LauncherKind.AUTO,
        version: str | None = None,
        options: ClientOptions | None = None,
        env: Mapping[str, str] | None = None,
        defaults: Mapping[str, FlagValue] | None = None,
        limits: Limits | None = None,
        name_prefix: str = "kimi-tune",
        state_folder: Path | None = None,
    ) -> None:
        """An engine for `model` (a folder or a hub id) on `gpu`.

        `installed` may be None where `launcher` is a template that brings its own vLLM; `version` is then
        needed, or the tag of the image tells it. `defaults` are the values that vLLM is known to take for
        flags left out (None: worked out for this model); what a server says goes before them.

        Raises:
            BadRequest: a bad launcher template.
            EngineUnavailable: there is no vLLM to run.
        """
        self._template = None if launcher in _KINDS else Template.parse(str(launcher))
        if self._template is None and installed is None:
            raise EngineUnavailable(
                "no vLLM found here",
                "pip install 'kimi-tune[vllm]', or name its interpreter with --vllm-python",
            )
        self._version = installed.version if installed else version or template_version(self._template)
        self._kind = LauncherKind.TEMPLATE if self._template else LauncherKind(launcher)
        if self._kind is LauncherKind.AUTO:
            # on a CPU vLLM spawns its engine in any case, and a fork gains nothing
            self._kind = LauncherKind.WARM if gpu.platform is Platform.CUDA else LauncherKind.PLAIN
        self._installed, self._model, self._gpu = installed, model, gpu
        self._table = _table_of(installed)
        self._options = options or ClientOptions()
        self._defaults = defaults if defaults is not None else _known_defaults(gpu, model, self._version)
        self._limits = limits or Limits()
        self._name_prefix = name_prefix
        self._state_folder = state_folder
        self._added = environment.added_environment(gpu.platform, model, env or {})
        self._owner = Owner(state_folder, self._limits.grace_s)
        self._warm: WarmLauncher | None = None
        self._notes: list[str] = []
        self._startups: list[float] = []
        self._cleared = False

    @classmethod
    def discover(cls, *, model: str, gpu: Gpu, python: str | None = None, **options: object) -> VllmEngine:
        """An engine for the vLLM of `python`, of this interpreter, or behind the `vllm` command.

        Raises:
            EngineUnavailable: there is none.
        """
        return cls(find_vllm(python), model=model, gpu=gpu, **options)  # type: ignore[arg-type]

    @property
    def vllm_version(self) -> str:
        """The version that runs."""
        return self._version

    @property
    def launcher(self) -> LauncherKind:
        """How the next server is started (WARM turns to PLAIN where forking does not work)."""
        return self._kind

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know: left-overs cleared, a launcher given up and why."""
        return tuple(self._notes)

    def plainly(self) -> VllmEngine:
        """The same engine starting its servers plainly from now on: for confirming what will be deployed."""
        self._close_warm()
        if self._kind is LauncherKind.WARM:
            self._kind = LauncherKind.PLAIN
        return self

    def startup_estimate_s(self) -> float:
        """The mean of the launches so far, else what this kind of launch usually takes."""
        if self._startups:
            return sum(self._startups) / len(self._startups)
        return 45.0 if self._gpu.platform is Platform.CPU else _STARTUP_GUESS_S[self._kind]

    def launch(self, config: LaunchConfig, folder: Path, phase: Phase | None = None) -> VllmServer:
        """Start a server and wait until it serves; its log is `folder`/server.log.

        A taken port is tried again on another one.

        Raises:
            LaunchFailure: it did not become ready. Nothing of it is left.
            EngineUnavailable: the command to run is not there.
            BadRequest: a flag that cannot be written for this vLLM.
        """
        say = phase or (lambda text: None)
        folder.mkdir(parents=True, exist_ok=True)
        self._owner.begin()
        if not self._cleared:
            self._cleared = True
            self._notes += clear_leftovers(self._state_folder)
        for left in range(_TRIES - 1, -1, -1):
            try:
                return self._launch(config, folder, say)
            except LaunchFailure as failure:
                if failure.kind is not FailureKind.PORT or not left:
                    raise
                say("the port is taken, trying another")
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Let the warm launcher and the watcher go; servers that still run are ended."""
        self._close_warm()
        self._owner.close()

    def _launch(self, config: LaunchConfig, folder: Path, say: Phase) -> VllmServer:
        for last in (False, True):
            if self._kind is not LauncherKind.WARM or not (warm := self._warmed(folder, say)):
                break
            try:
                return self._start(config, folder, say, warm)
            except WarmUnavailable as why:
                self._close_warm()
                if last:  # a launcher that has died is started again, once
                    self._give_up_forking(str(why), say)
            except LaunchFailure as failure:
                if not _fork_to_blame(failure):
                    raise
                say("the forked server failed in an unknown way, trying a plain launch")
                server = self._start(config, folder, say, None)  # if this fails too, it was not the fork
                self._give_up_forking(failure.cause, say)
                return server
        return self._start(config, folder, say, None)

    def _start(self, config: LaunchConfig, folder: Path, say: Phase, warm: WarmLauncher | None) -> VllmServer:
        log = _fresh_log(folder)
        flags = to_argv(config, self._version, self._table)
        deployed = ("vllm", "serve", self._model, *flags)
        notes = list(self._notes)
        if "load-format" not in config and _lacks_weights(self._model):
            flags += ["--load-format", "dummy"]
            notes.append("the model folder holds no weights: served with random ones (load-format dummy)")
        port, name = free_port(), f"{self._name_prefix}-{secrets.token_hex(4)}"
        command = self._command(flags, port, name, warm is not None)
        memory = gpu_memory.used_bytes() if self._gpu.platform is Platform.CUDA else ()
        started = time.monotonic()
        if command.container:
            self._owner.at_end(list(command.remove))
        try:
            handle = self._run(command, log, name, warm)
        except BaseException:
            self._owner.forget(list(command.remove))
            raise
        self._owner.own(handle.pid)
        marker = f"{SERVER_MARKER}={name}"
        running = Running(handle, command, port, self._limits, self._owner, memory, marker, log)
        watched = Watched(port, name, log, running.poll, running.activity)
        try:
            startup_s = wait_ready(watched, self._limits, say, started)
            self._owner.own(handle.pid)
            said = facts.collect(
                port,
                name,
                log,
                startup_s=startup_s,
                command=deployed,
                given=config,
                defaults=self._defaults,
                notes=tuple(notes),
            )
        except BaseException as error:
            running.stop()
            self._notes += running.notes
            if isinstance(error, LaunchFailure) and (blamed := running.blame(error)) is not error:
                raise blamed from error
            raise
        self._startups.append(startup_s)
        return VllmServer(said, running, watched, self._limits, self._options)

    def _command(self, flags: list[str], port: int, name: str, forked: bool) -> Command:
        if forked:
            template = Template(("vllm", "serve", "{args}"))
        elif self._template is not None:
            template = self._template
        else:
            assert self._installed is not None
            template = plain_template(str(self._installed.python), self._installed.package_dir)
        return template.command(self._model, flags, port=port, name=name, environment=self._added)

    def _run(self, command: Command, log: Path, name: str, warm: WarmLauncher | None) -> Handle:
        if warm is not None:
            return warm.launch(command.argv[1:], log)
        try:
            return Child(command.argv, {**self._environment(), SERVER_MARKER: name}, log)
        except OSError as error:
            raise EngineUnavailable(
                f"{command.argv[0]} cannot be started: {error.strerror}", "check --launcher and --vllm-python"
            ) from error

    def _environment(self) -> dict[str, str]:
        python = self._installed.python if self._installed else None
        return {**environment.server_environment(self._added, python), **self._owner.environment}

    def _warmed(self, folder: Path, say: Phase) -> WarmLauncher | None:
        assert self._installed is not None
        if self._warm is not None and self._warm.stale:
            say("vLLM has changed on the disk, importing it again")
            self._close_warm()
        if self._warm is None:
            self._warm = WarmLauncher(
                self._installed.python,
                self._installed.package_dir,
                self._environment(),
                folder / "preload.log",
                self._owner,
            )
        if not self._warm.lives:
            say("importing vLLM once")
        try:
            self._warm.start()
        except WarmUnavailable as why:
            self._give_up_forking(str(why), say)
            return None
        return self._warm

    def _give_up_forking(self, why: str, say: Phase) -> None:
        note = f"servers are started plainly from here on: {why}"
        self._notes.append(note)
        say(note)
        self._close_warm()
        self._kind = LauncherKind.PLAIN

    def _close_warm(self) -> None:
        warm, self._warm = self._warm, None
        if warm is not None:
            warm.close()


def _table_of(installed: Installed | None) -> FlagTable | None:
    try:
        return installed_flag_table(installed.package_dir, installed.version) if installed else None
    except BadRequest:  # its sources cannot be read: the shipped table of that version
        return None


def _known_defaults(gpu: Gpu, model: str, version: str) -> Mapping[str, FlagValue]:
    try:
        return effective_defaults(gpu, find_model(model), version)
    except BadRequest:  # a model of which nothing is known here: only what the server says
        return {}


def _fork_to_blame(failure: LaunchFailure) -> bool:
    if failure.kind is FailureKind.UNKNOWN:
        return True
    return failure.log is not None and bool(_FORK_FAULT.search(read_tail(failure.log)))


def _lacks_weights(model: str) -> bool:
    folder = Path(model)
    return (folder / "config.json").is_file() and not has_weights(folder)


def _fresh_log(folder: Path) -> Path:
    """`server.log`; one that is there already is kept under a number."""
    log = folder / "server.log"
    if log.exists():
        number = 1
        while (kept := folder / f"server.{number}.log").exists():
            number += 1
        log.replace(kept)
    return log
