"""The arguments of a program in a shell script: variables are put in, nothing is executed.

What is understood: assignments, arrays, ``+=``, ``$NAME``, ``${NAME}``, ``${NAME[@]}`` with and
without quotes, ``${NAME:-default}``, sums and products in ``$(( ))``, quotes, comments, continued
lines, ``set --``, ``eval`` and ``bash -c``; here-documents that ``read`` puts into a variable or
that are written to a file, and what ``$(cat <<X)``, ``$(echo words)`` and functions print; ``if``,
``case`` and ``&&`` where the values of their variables say which way they go
(:mod:`silicast.formats.shell_branches`); functions with the arguments of each call. What
``#SBATCH`` lines ask for are the variables that Slurm sets. The last assignment of a name counts.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import final

from silicast.core.errors import over_limit
from silicast.formats._shell_lexer import (
    Assignment,
    Command,
    Token,
    Word,
    WordPiece,
    closing_bracket,
    commands,
)
from silicast.formats._shell_sums import integer_of
from silicast.formats.shell_branches import CONDITIONS, Branches

MAX_EXPANDED = 1 << 20
MOST_NESTED = 8
"""Defaults in defaults, and scripts in scripts."""
_DECLARES = frozenset(("export", "declare", "local", "readonly", "typeset"))
_BEFORE = frozenset(("{", "!", "time", "exec", "nohup"))
"""Words before a command that runs as if it stood alone."""
_Variables = dict[str, str | list[str]]
_PRINTS = frozenset(("echo", "printf"))
_OF_PRINTS = frozenset(("-n", "-e", "%s", "%s\\n", "%s "))
_WRITERS = frozenset(("cat", "tee"))
_PIPES = frozenset(("|", "|&"))
_SHELLS = frozenset(("bash", "sh"))
_NAMED = re.compile(r"\$(?:([A-Za-z_]\w*|\d)|\{([A-Za-z_]\w*|\d)\})")
_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*):?=[^{}]*\}")
_LAUNCHERS = frozenset(("srun", "mpirun", "mpiexec"))
"""Their options hold for the program behind a shell that they start, too."""
_PROGRAM = re.compile(r"(?:.*/)?(?:python[\d.]*|torchrun|deepspeed|bash|sh)|.*\.py")
"""No value of an option before it."""
_SHORT = {"-N": "--nodes", "-n": "--ntasks", "-np": "--ntasks"}
_FUNCTION = re.compile(r"\bfunction\s+([\w-]+)|(?<![\w-])([\w-]+)\s*\(\)")
_SLURM = "#SBATCH"
_LONGEST_LINE = 1000
_USED = re.compile(r"\$(?:[({@*]|[A-Za-z_]\w*|\d)")
_BRACED = re.compile(r"([A-Za-z_]\w*|\d+|[@*])(?:\[[@*]\])?(?::?[-=](?P<default>.*))?", re.DOTALL)


@final
@dataclass(frozen=True)
class Script:
    """A script's variables, and its commands.

    Attributes:
        variables: text, or the words of an array.
        runs: the words of each command that is no assignment, no condition and prints nothing.
        branched: variables that are set where a condition holds of which it is not known.
        missing: variables of conditions that nobody sets: they count as empty.
        looped: variables of loops that take several values, with these.
        files: here-documents and what ``echo`` says that it writes, by the names of the files;
            files to which anything else is written are left out.
    """

    variables: Mapping[str, str | list[str]]
    runs: tuple[list[str], ...]
    branched: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    looped: Mapping[str, list[str]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

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
        runs: dict[tuple[str, ...], list[str]] = {}
        calls: Mapping[str, list[list[str]]] = {}
        number = 0
        for _ in range(MOST_NESTED):  # a function stands before what calls it: read again with that
            of_call = {name: each[min(number, len(each) - 1)] for name, each in calls.items()}
            reader = _ScriptReader({**of_slurm(text), **given}, frozenset(given), of_call)
            reader.read(text)
            number = number + 1 if reader.calls == calls else 0
            runs = runs if number > 1 else {}
            runs |= {tuple(words): words for words in reader.expanded_runs()}
            if number and number >= max(map(len, calls.values()), default=0):
                break
            calls = reader.calls
        return Script(
            reader.variables,
            tuple(runs.values()),
            tuple(reader.branched),
            tuple(reader.missing),
            reader.looped,
            reader.written(),
        )

    def command(self) -> list[str]:
        """Words of the command with the most options, the last of several; without any such
        command all words, and in a script that only sets variables those of all of them.
        """
        runs = [words for words in self.runs if words and not words[0].startswith("-")]
        most = max(map(_option_count, runs), default=0)
        if most:
            return next(words for words in reversed(runs) if _option_count(words) == most)
        words = [word for run in self.runs for word in run]
        if _option_count(words):
            return words
        values = self.variables.values()
        return [w for value in values for w in (value.split() if isinstance(value, str) else value)]


def _option_count(words: Sequence[str]) -> int:
    return sum(word.startswith("--") for word in words)


@final
@dataclass(frozen=True)
class _Write:
    """What a command writes to a file; None = not known."""

    name: Word
    text: Word | None
    appends: bool


@final
class _ScriptReader:
    """Commands of a script read one by one; what all expansions together hold is bounded."""

    def __init__(
        self,
        given: Mapping[str, str],
        fixed: frozenset[str],
        of_call: Mapping[str, list[str]] = MappingProxyType({}),
    ) -> None:
        self.variables: dict[str, str | list[str]] = dict(given)
        self.fixed = fixed
        self.of_call = of_call
        self.functions: frozenset[str] = frozenset()
        self.calls: dict[str, list[list[str]]] = {}
        self.call_arguments: _Variables = {}
        self.depth = 0
        self.branched: dict[str, None] = {}
        self.missing: dict[str, None] = {}
        self.looped: dict[str, list[str]] = {}
        self.runs: list[tuple[list[Token], _Variables]] = []
        self.files: list[_Write] = []
        self.piped: Word | None = None
        self.printed: dict[str, list[list[Token]]] = {}
        self.function = ""
        self.branches = Branches(self.condition_words)
        self.size = self.nested = 0

    def read(self, text: str) -> None:
        before = ""
        self.functions = frozenset(m[1] or m[2] for m in _FUNCTION.finditer(text))
        for command in commands(text):
            piped, self.piped = self.piped, None
            if command.joined.endswith("()"):
                self.function = before
            tokens = self.branches.entered(command.joined, command.tokens, _plain)
            while tokens and _plain(tokens[0]) in _BEFORE:
                tokens = tokens[1:]
            head = _plain(tokens[0]) if tokens else ""
            before = _plain(command.tokens[-1])
            if head == "function" and len(tokens) > 1:
                self.function = _plain(tokens[1])
            self.bracket(_plain(command.tokens[0]), before)
            if head == "for":
                self.loop(tokens)
            elif head in CONDITIONS or not tokens or not self.branches.runs:
                continue
            else:
                document = command.document or (piped if command.joined in _PIPES else None)
                self.command(replace(command, tokens=tokens, document=document), head)

    def bracket(self, first: str, last: str) -> None:
        """Counts curly brackets: the outermost of a function ends it."""
        if first == "}":
            self.depth = max(self.depth - 1, 0)
            if not self.depth:
                self.function = ""
        elif "{" in (first, last):
            self.depth += 1
        words = self.of_call.get(self.function)
        self.call_arguments = {} if words is None else positional(words)

    def expanded_runs(self) -> Iterator[list[str]]:
        """Words of all commands, in the end: the last assignment of a name counts."""
        outer = self.variables
        for tokens, arguments in self.runs:
            self.variables = {**outer, **arguments}
            yield from self.expanded(tokens)
        self.variables = outer

    def command(self, command: Command, head: str) -> None:
        tokens = command.tokens
        assigned = [token for token in tokens if isinstance(token, Assignment)]
        words = [token for token in tokens if not isinstance(token, Assignment)]
        if assigned and (len(assigned) == len(tokens) or head in _DECLARES):
            for each in assigned:
                self.assign(each)
        elif command.document is not None and _plain(words[0]) == "read":
            self.keep(_plain(words[-1]), self.text(command.document))
        elif head in _WRITERS and command.document is not None:
            self.write(words, command)
        elif head == "set":
            self.arguments(tokens[1:])
        elif head == ":":
            self.defaults(tokens[1:])
        elif head in _PRINTS and command.target is None:
            self.printed.setdefault(self.function, []).append(tokens)
        elif head not in _DECLARES:
            if head in self.functions and len(words) > 1:
                given = [field for word in words[1:] for field in self.fields(word)]
                self.count(given)
                before = self.calls.setdefault(head, [])
                if len(before) < MOST_NESTED and given not in before:  # later ones are not read
                    before.append(given)
            self.runs += [] if head in _PRINTS else [(tokens, self.call_arguments)]
            if command.target is not None:
                self.files.append(_Write(command.target, _echoed(tokens), command.appends))

    def write(self, words: Sequence[Word], command: Command) -> None:
        """``cat`` and ``tee`` of a here-document: into files, or on to the next command."""
        named = [word for word in words[1:] if not _plain(word).startswith("-")]
        flags = [_plain(word) for word in words[1:] if word not in named]
        document = command.document
        if _plain(words[0]) == "tee":
            appends = "-a" in flags or "--append" in flags
            self.files += [_Write(word, document, appends) for word in named]
        elif named:
            document = None  # cat takes the files that it names
        if command.target is not None:
            self.files.append(_Write(command.target, document, command.appends))
        else:
            self.piped = document

    def written(self) -> dict[str, str]:
        """Texts of files by name, without those that are not known."""
        texts: dict[str, str | None] = {}
        for each in self.files:
            name = "".join(self.fields(each.name))
            before = texts.get(name, "") if each.appends else ""
            text = None if each.text is None else self.text(each.text)
            texts[name] = None if before is None or text is None else before + text
        return {name: text for name, text in texts.items() if text is not None}

    def text(self, document: Word) -> str:
        """A here-document with its variables put in."""
        return _joined(self.pieces_of(document))

    def keep(self, name: str, value: str | list[str]) -> None:
        """The value of a variable from here on."""
        self.count(value)
        self.variables[name] = value
        if self.branches.is_unsure:
            self.branched[name] = None

    def output(self, inner: str) -> str | None:
        """What a substituted command prints; None = only running it would say."""
        if self.nested >= MOST_NESTED:
            return None
        self.nested += 1
        parsed = list(itertools.islice(commands(inner), 2))
        text: str | None = None
        if len(parsed) == 1 and not any(isinstance(t, Assignment) for t in parsed[0].tokens):
            command, head = parsed[0], _plain(parsed[0].tokens[0])
            if head == "cat" and command.document is not None:
                text = self.text(command.document)
            elif head in _PRINTS:
                text = self.words_of([command.tokens])
            elif len(command.tokens) == 1 and head in self.printed:
                text = self.words_of(self.printed[head])
        self.nested -= 1
        return text

    def words_of(self, prints: Sequence[Sequence[Token]]) -> str:
        """What ``echo`` and ``printf`` print, without their options and formats."""
        words = [
            f
            for each in prints
            for token in each[1:]
            if not isinstance(token, Assignment)
            for f in self.fields(token)
        ]
        return " ".join(word for word in words if word not in _OF_PRINTS)

    def arguments(self, tokens: Sequence[Token]) -> None:
        """``set -- words`` gives the script arguments of its own."""
        if not tokens or _plain(tokens[0]) != "--":
            return
        words = [f for token in tokens[1:] if isinstance(token, tuple) for f in self.fields(token)]
        self.count(words)
        self.variables |= positional(words)

    def defaults(self, tokens: Sequence[Token]) -> None:
        """``: ${NAME:=value}`` sets a variable that has no value."""
        for part in (part for token in tokens if isinstance(token, tuple) for part in token):
            match = _DEFAULT.fullmatch(part.text)
            value = self.value(part.text, 0) if match and match[1] not in self.variables else None
            if match and value is not None:
                self.variables[match[1]] = value

    def loop(self, tokens: list[Token]) -> None:
        """``for NAME in words``: one word is the variable's value; of several none is."""
        names = [_plain(token) for token in tokens[1:3]]
        if len(tokens) < 4 or names[1] != "in" or names[0] in self.fixed:
            return
        words = [f for token in tokens[3:] if isinstance(token, tuple) for f in self.fields(token)]
        self.count(words)
        if len(words) == 1:
            self.variables[names[0]] = words[0]
        else:
            self.variables.pop(names[0], None)
            self.looped[names[0]] = words

    def condition_words(self, tokens: Sequence[Token]) -> list[str]:
        """Words of a condition; a variable that nobody sets is an empty one."""
        words: list[str] = []
        for token in tokens:
            if isinstance(token, Assignment):
                continue
            for part in token:
                for match in _NAMED.finditer("" if part.quote == "'" else part.text):
                    name = match[1] or match[2]
                    if name not in self.variables and name not in self.looped:
                        self.missing[name] = None
                        self.branches.unsure()
            pieces = [
                "" if isinstance(text, str) and _NAMED.fullmatch(text) else text
                for text, _ in self.pieces_of(token)
            ]
            words.append(_joined((piece, False) for piece in pieces))
        self.count(words)
        return words

    def assign(self, each: Assignment) -> None:
        value: str | list[str]
        if each.is_array:
            value = [field for word in each.words for field in self.fields(word)]
        else:
            value = _joined(self.pieces_of(each.words[0]))
        before = self.variables.get(each.name)
        if each.adds and before is not None:
            if isinstance(before, list):
                value = [*before, *([value] if isinstance(value, str) else value)]
            else:
                value = [before, *value] if isinstance(value, list) else before + value
        self.keep(each.name, value)

    def count(self, value: str | list[str]) -> None:
        """Raises SilicastError of kind "limit" where variables hold too much together."""
        self.size += len(value) if isinstance(value, str) else sum(len(each) + 1 for each in value)
        if self.size > MAX_EXPANDED:
            raise over_limit("variables hold too much text")

    def expanded(self, tokens: Sequence[Token], nested: int = 0) -> Iterator[list[str]]:
        """The words of a command, and of those that a shell in it would run."""
        words: list[str] = []
        for token in tokens:
            if not isinstance(token, Assignment):
                words += self.fields(token)
            elif words:  # behind the program's name it is an argument
                value = "".join(_joined(self.pieces_of(word)) for word in token.words)
                words.append(f"{token.name}={value}")
        words = _long(words)
        self.count(words)
        yield words
        inner = " ".join(words[1:]) if words[:1] == ["eval"] else _script_in(words)
        before = words[: words.index(inner)] if inner and words[0] in _LAUNCHERS else []
        if inner and nested < MOST_NESTED:
            for command in commands(inner):
                for each in self.expanded(command.tokens, nested + 1):
                    yield [*before, *each]

    def fields(self, word: Word) -> list[str]:
        """What the shell makes of a word: none, one or several."""
        fields: list[str] = []
        current: str | None = None
        for text, splits in self.pieces_of(word):
            parts = text if isinstance(text, list) else [text]
            if splits:
                parts = " ".join(parts).split()
            for position, part in enumerate(parts):
                if position and current is not None:
                    fields.append(current)
                    current = None
                current = part if current is None else current + part
        return fields if current is None else [*fields, current]

    def pieces_of(self, word: Word) -> Iterator[tuple[str | list[str], bool]]:
        """Texts of a word, or the words of an array in it; whether the shell splits them."""
        for part in word:
            if part.quote == "'":
                yield part.text, False
                continue
            for text, is_value in self.pieces(part.text):
                yield text, is_value and not part.quote

    def pieces(self, text: str, nested: int = 0) -> Iterator[tuple[str | list[str], bool]]:
        """A text with its variables put in; one that has no value stays as it stands."""
        position = 0
        while match := _USED.search(text, position):
            if match.start() > position:
                yield text[position : match.start()], False
            position = match.end()
            if text[position - 1] in "({":
                position = closing_bracket(text, position - 1)
            used = text[match.start() : position]
            value = self.value(used, nested)
            yield (used, False) if value is None else (value, True)
            if value is not None:
                self.count(value)
        if position < len(text):
            yield text[position:], False

    def value(self, used: str, nested: int) -> str | list[str] | None:
        """The value of ``$...``; None = it has none here."""
        if used.startswith("$(("):
            sum_ = integer_of(self.with_numbers(used[3:-2]))
            return None if sum_ is None else str(sum_)
        if used.startswith("$("):
            return self.output(used[2:-1])
        match = _BRACED.fullmatch(used[2:-1] if used[1] == "{" else used[1:])
        if match is None:
            return None
        value = self.call_arguments.get(match[1], self.variables.get(match[1]))
        if value is None and match[1] in ("@", "*"):
            value = []  # the script is started without arguments of its own
        if isinstance(value, list) and "[*]" in used:
            value = " ".join(value)
        if value is None and match["default"] is not None and nested < MOST_NESTED:
            default = match["default"].strip("'\"")
            return _joined(self.pieces(default, nested + 1))
        return value

    def with_numbers(self, text: str) -> str:
        """A sum with the values of its variables."""

        def number(name: re.Match[str]) -> str:
            value = self.variables.get(name[1], name[0])
            return value if isinstance(value, str) else name[0]

        return re.sub(r"\$?\{?\b([A-Za-z_]\w*)\b\}?", number, text[:200])


def positional(words: list[str]) -> _Variables:
    """Variables by which a script or a function reads its arguments."""
    numbered = {str(number): word for number, word in enumerate(words[:9], 1)}
    return {"@": words, "*": words, **numbered}


def _joined(pieces: Iterator[tuple[str | list[str], bool]]) -> str:
    """Pieces as one text."""
    return "".join(" ".join(text) if isinstance(text, list) else text for text, _ in pieces)


def _long(words: list[str]) -> list[str]:
    """A launcher's options by their long names.

    >>> _long(["mpirun", "-np", "16", "python", "run.py", "-n", "1"])
    ['mpirun', '--ntasks', '16', 'python', 'run.py', '-n', '1']
    >>> _long(["srun", "-N2", "run.sh"])
    ['srun', '--nodes', '2', 'run.sh']
    """
    if not words or words[0] not in _LAUNCHERS:
        return words
    made: list[str] = []
    for position, word in enumerate(words):
        match = re.fullmatch(r"(-np?|-N)=?(\d*)", word)
        if _PROGRAM.fullmatch(word):
            return [*made, *words[position:]]
        made += [_SHORT[match[1]], *([match[2]] if match[2] else [])] if match else [word]
    return made


def _echoed(tokens: Sequence[Token]) -> Word | None:
    """The line that ``echo`` prints; None = only running it would say."""
    words = [token for token in tokens[1:] if isinstance(token, tuple)]
    is_plain = len(words) == len(tokens) - 1 and not (words and _plain(words[0]).startswith("-"))
    if _plain(tokens[0]) != "echo" or not is_plain:
        return None
    parts = [part for word in words for part in (WordPiece(" ", "'"), *word)]
    return (*parts[1:], WordPiece("\n", "'"))


def _plain(token: Token) -> str:
    """A bare word, "" for anything else."""
    if isinstance(token, Assignment) or len(token) != 1 or token[0].quote:
        return ""
    return token[0].text


def _script_in(words: Sequence[str]) -> str:
    """What ``bash -c`` is given; "" = nothing."""
    if "sbatch" in words:
        wrapped = [word for word in words if word.startswith("--wrap")]
        if wrapped and "=" in wrapped[0]:
            return wrapped[0].partition("=")[2]
    for position, word in enumerate(words[:-1]):
        if re.fullmatch(r"-\w*c", word) and _SHELLS & set(words[:position]):
            return words[position + 1]
    return ""


def of_slurm(text: str) -> dict[str, str]:
    r"""Variables that Slurm sets by the ``#SBATCH`` lines of a script.

    >>> of_slurm("#SBATCH --nodes=4\n#SBATCH --gres=gpu:8")
    {'SLURM_NNODES': '4', 'SLURM_JOB_NUM_NODES': '4', 'SLURM_GPUS_ON_NODE': '8'}
    """
    options_of_jobs: dict[str, str] = {}
    lines = [line for line in text.splitlines() if line.startswith(_SLURM)]
    for whole in lines[:100]:
        line = whole[len(_SLURM) : _LONGEST_LINE].partition(" #")[0]
        options_of_jobs |= options(re.sub(r"(^|\s)-N[ =]?(?=\d)", r"\1--nodes=", line).split())
        if match := re.search(r"(?:^|\s)-n[ =]?(\d+)", line):
            options_of_jobs["ntasks"] = match[1]
    if match := re.fullmatch(r"gpu(?::[\w-]+)?:(\d+)", options_of_jobs.get("gres", "")):
        options_of_jobs.setdefault("gpus-per-node", match[1])
    names = {
        "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
        "ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
        "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
        "gpus-per-node": ("SLURM_GPUS_ON_NODE",),
    }
    numbers = {
        name: options_of_jobs[name].rpartition(":")[2] for name in names if name in options_of_jobs
    }
    return {
        variable: number
        for name, number in numbers.items()
        for variable in names[name]
        if number.isdigit()
    }


def options(words: Sequence[str]) -> Mapping[str, str]:
    """``--name value`` and ``--name=value`` by name with hyphens; "" for a flag alone.

    A name and its value that a quote holds together are taken apart.

    >>> dict(options(["run.py", "--num_layers", "4", "--bf16", "--lr=1e-4", "-q", "--tp 2"]))
    {'num-layers': '4', 'bf16': '', 'lr': '1e-4', 'tp': '2'}
    >>> dict(options(["run.py", "--pp 2 --method uniform"]))
    {'pp': '2', 'method': 'uniform'}
    """
    values: dict[str, str] = {}
    name = ""
    for word in _apart(words):
        if word.startswith("--") and len(word) > 2:
            match = re.match(r"--([^\s=]*)[\s=]?(.*)", word, re.DOTALL)
            assert match is not None
            name = match[1].replace("_", "-")
            values[name] = match[2].strip()
        elif _PROGRAM.fullmatch(word) or (word.startswith("-") and not re.match(r"-\d", word)):
            name = ""
        elif name:
            values[name] = f"{values[name]} {word}".strip()
    return values


def _apart(words: Sequence[str]) -> Iterator[str]:
    """Words, with several options that a quote holds together taken apart."""
    for word in words:
        if word.startswith("--") and re.search(r"\s--[A-Za-z]", word):
            yield from map(str.strip, re.split(r"\s(?=--[A-Za-z])", word))
        else:
            yield word


def unresolved(value: str) -> bool:
    """Whether a value is left to the shell."""
    return "$" in value or "`" in value
