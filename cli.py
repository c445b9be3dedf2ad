"""The command ``chunkscope``: one command, the same flags everywhere.

Exit codes: 0 done (same, valid), 1 different or invalid, 2 wrong usage or unreadable input.
Heavy parts (torch, Dash, skia) are imported by the commands that need them.
"""

from __future__ import annotations

import click

from .commands.checking import check, diff, verify
from .commands.comparing import compare
from .commands.console import Commands
from .commands.fitting import fit
from .commands.looking import open_, show
from .commands.making import demo, export, list_, run, sim
from .commands.recording import merge, record, strip


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="chunkscope")
def main() -> None:
    """Watch a collective move: record it, simulate it, play it, film it and diff it.

    \b
    Example: chunkscope sim all_reduce --open
    """


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Example: chunkscope completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    completer = get_completion_class(shell)
    assert completer is not None
    click.echo(completer(main, {}, "chunkscope", "_CHUNKSCOPE_COMPLETE").source())


# In the order in which a newcomer meets them.
for command in (
    demo,
    sim,
    compare,
    run,
    fit,
    record,
    merge,
    strip,
    open_,
    show,
    check,
    diff,
    list_,
    verify,
    export,
    completion,
):
    main.add_command(command)
