"""The arguments of a program in a shell script: variables are put in, nothing is executed.

What is understood: assignments, arrays, ``+=``, ``$NAME``, ``${NAME}``, ``${NAME[@]}`` with and
without quotes, ``${NAME:-default}``, sums and products in ``$(( ))``, quotes, comments, continued
lines, ``set --``, ``eval``, ``bash -c``, ``ssh``, brackets; here-documents that ``read``, a shell
or a file takes, and what ``$(cat <<X)``, ``$(echo words)`` and functions print; ``if``, ``case``
and ``&&`` where the values of their variables say which way they go
(:mod:`silicast.formats.shell_branches`); functions with the arguments of each call, and ``shift``.
What ``#SBATCH`` lines ask for are variables of Slurm. A shell within the script knows what is
exported to it, one on another machine nothing, and neither changes the variables of the script.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import final

from silicast.formats._shell_reader import ScriptReader
from silicast.formats.shell_options import of_slurm
from silicast.formats.shell_runs import ShellRun, option_count


@final
@dataclass(frozen=True)
class Script:
    """A script's variables, and its commands.

    Attributes:
        variables: text, or the words of an array.
        commands: each that is no assignment, no condition and prints nothing.
        branched: variables that are set where a condition holds of which it is not known.
        missing: variables of conditions that nobody sets: they count as empty.
        looped: variables of loops that take several values, with these.
        sourced: files that it reads commands of, and that are not known.
        files: here-documents and what ``echo`` says that it writes, by the names of the files;
            files to which anything else is written are left out.
    """

    variables: Mapping[str, str | list[str]]
    commands: tuple[ShellRun, ...]
    branched: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    looped: Mapping[str, list[str]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    sourced: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[list[str], ...]:
        """Words of the commands, equal ones once."""
        return tuple({tuple(run.words): run.words for run in self.commands}.values())

    @staticmethod
    def parse(text: str, given: Mapping[str, str] = MappingProxyType({})) -> Script:
        r"""A script of its text.

        Args:
            given: variables that the shell has when it starts; one of a loop holds in it.

        Raises:
            SilicastError: kind "limit": variables grow beyond 1 MiB.

        >>> script = Script.parse('TP=2\nARGS=(--tp $TP --bf16)\npython x.py "${ARGS[@]}"')
        >>> script.command()
        ['python', 'x.py', '--tp', '2', '--bf16']
        """
        reader = ScriptReader({**of_slurm(text), **given}, frozenset(given))
        reader.read(text.replace("\r\n", "\n"))  # or a backslash would not continue a line
        runs = {
            (*run.words, "", *run.assigned.items(), *(run.around if run.apart else ())): run
            for run in reader.runs
        }
        return Script(
            reader.variables,
            tuple(runs.values()),
            tuple(reader.branched),
            tuple(reader.missing),
            reader.looped,
            reader.known_files(),
            tuple(reader.sourced),
        )

    def command(self) -> list[str]:
        """Words of the command with the most options, the last of several; without any such
        command all words, and in a script that only sets variables those of all of them.
        """
        runs = [words for words in self.runs if words and not words[0].startswith("-")]
        most = max(map(option_count, runs), default=0)
        if most:
            return next(words for words in reversed(runs) if option_count(words) == most)
        words = [word for run in self.runs for word in run]
        if option_count(words):
            return words
        values = self.variables.values()
        return [w for value in values for w in (value.split() if isinstance(value, str) else value)]
