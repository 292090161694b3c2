"""The console: plan, live view, plain lines, recommendation."""

from tuner.report.console.observers import LiveObserver, PlainObserver, watching
from tuner.report.console.plan import plan_lines
from tuner.report.console.result import command_text, print_result, users_table

__all__ = [
    "LiveObserver",
    "PlainObserver",
    "command_text",
    "watching",
    "plan_lines",
    "print_result",
    "users_table",
]
