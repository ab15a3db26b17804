"""Carries out what is known of a shell script, command by command; nothing is executed."""

from __future__ import annotations

import itertools
import re
import shlex
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from types import MappingProxyType
from typing import final

from silicast.core.errors import SilicastError, over_limit
from silicast.formats._shell_assigning import Assigning
from silicast.formats._shell_expansion import MOST_NESTED, joined
from silicast.formats._shell_functions import (
    Functions,
    body_that_sets,
    echoed,
    lost,
    plain,
    with_names,
)
from silicast.formats._shell_lexer import SUM, Assignment, Command, Token, Word, WordPiece, commands
from silicast.formats._shell_sums import PRINTS, names_set, printed_text
from silicast.formats._shell_writes import WrittenFiles
from silicast.formats.shell_branches import CONDITIONS, Branches
from silicast.formats.shell_options import (
    LAUNCHERS,
    TAKE_SCRIPTS,
    file_at,
    given_in,
    is_apart,
    long_names,
    reads_script,
    remote_in,
    script_in,
    unresolved,
)
from silicast.formats.shell_runs import ShellRun, option_count

_DECLARES = frozenset(("export", "declare", "local", "readonly", "typeset"))
_BEFORE = frozenset(("{", "!", "time", "exec", "nohup"))
"""Words before a command that runs as if it stood alone."""
_Variables = dict[str, str | list[str]]
_SOURCES = frozenset((".", "source"))
_WRITERS = frozenset(("cat", "tee"))
_PIPES = frozenset(("|", "|&"))
_NAMED = re.compile(r"\$(?:([A-Za-z_]\w*|\d)|\{([A-Za-z_]\w*|\d)\})")
MOST_STEPS = 1 << 15
"""Commands that all calls of functions, and loops that only set variables, carry out together."""
_HELD = frozenset(
    ("variables", "keyed", "sparse", "exported", "branched", "missing", "looped", "local")
)
"""What the commands of a loop change that only sets variables."""
MOST_COPIES = 256
"""Copies of all variables, as they are for different runs."""


@final
class ScriptReader(Assigning):
    """Commands of a script read one by one; what all expansions together hold is bounded."""

    def __init__(self, variables: Mapping[str, str | list[str]], fixed: frozenset[str]) -> None:
        super().__init__(variables, fixed)
        self.exported_copy = frozenset[str]()
        self.copies = 0
        self.ended = False
        self.opened = ""
        self.builtins: dict[str, Callable[[Sequence[Word]], None]] = {
            "set": self.set,
            "shift": self.shift,
            "unset": self.unset,
            ":": self.defaults,
        }
        self.subshells: list[tuple[_Variables, set[str]]] = []
        self.functions = Functions()
        self.called: set[str] = set()
        self.missing: dict[str, None] = {}
        self.looped: dict[str, list[str]] = {}
        self.carries = True
        self.counted: set[str] = set()
        self.sourced: dict[str, None] = {}
        self.runs: list[ShellRun] = []
        self.files = WrittenFiles()
        self.piped: Word | None = None
        self.before: Sequence[Token] = ()
        self.printed: list[str] | None = None
        self.nested = self.level = self.depth = self.steps = 0

    def read(self, text: str) -> None:
        self.follow(with_names(commands(text)))
        self.functions.end()
        outer = dict(self.variables)
        self.ended = False
        for name in [body for body in self.functions.bodies if body not in self.called]:
            self.call(name, None)  # nothing says when: it replaces no variable of the script's own
            self.put(outer)

    def follow(self, read: Iterable[tuple[Command, bool]]) -> None:
        """Carries out commands, and holds the functions that they define."""
        queue, outer = deque(read), self.apart
        while queue and not self.ended:
            command, names = queue.popleft()
            runs = self.branches.runs
            if self.functions.holds(command, names=names, runs=runs):
                continue
            is_piped = command.joined in _PIPES or bool(queue and queue[0][0].joined in _PIPES)
            self.apart = self.apart or is_piped
            self.step(command, names=names)
            self.apart = outer
            opened, self.opened = self.opened, ""
            body, is_apart = body_that_sets(queue) if opened else ([], False)
            is_apart = is_apart or command.joined in _PIPES  # its variables are lost with it
            if body and (is_apart or self.carried_out(opened, body)):
                for _ in body:
                    queue.popleft()

    def carried_out(self, name: str, body: list[tuple[Command, bool]]) -> bool:
        """Whether a loop that only sets variables was carried out; one that costs too much leaves
        all as it was, and none is carried out after it.

        Args:
            name: of the loop's variable.
        """
        values = self.looped.get(name, ())
        if (
            not values
            or self.steps + len(values) * (1 + len(body)) > MOST_STEPS
            or not self.carries
        ):
            return False
        self.count("".join(self.variables))
        before = dict(vars(self))
        held = {key: copy(value) for key, value in before.items() if key in _HELD}
        try:
            del self.looped[name]
            for value in values:
                self.spend(1 + len(body))
                self.keep(name, value)
                self.inside(body)
        except SilicastError as error:
            if error.kind != "limit":
                raise
            vars(self).update(before | held)
            self.copy, self.carries = None, False
            return False
        return True

    def spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MOST_STEPS:
            raise over_limit("functions or loops are called too often")

    def step(self, command: Command, *, names: bool = False) -> None:
        """One command; one that only names a function that follows is not carried out."""
        piped, self.piped = self.piped, None
        before, self.before = self.before, command.tokens
        if not names:
            self.bracket(self.branches.without_patterns(command.joined))
        tokens = self.branches.entered(command.joined, command.tokens, plain)
        for name in self.counted.intersection(self.branches.ended):
            self.counted.discard(name)
            self.forget(name)  # it is what ended the loop
        while tokens and plain(tokens[0]) in _BEFORE:
            tokens = tokens[1:]
        head = plain(tokens[0]) if tokens else ""
        if self.arguments and self.branches.in_skipped_loop:
            assigns = any(isinstance(token, Assignment) for token in tokens)
            if assigns or head == "shift":
                raise lost("a loop over the arguments of a call")
        if self.branches.skips_by_status and not self.branches.runs and not names:
            assigned = [token for token in command.tokens if isinstance(token, Assignment)]
            self.branched |= {token.name: None for token in assigned}
        if head == "for":
            self.loop(tokens)
        elif head not in CONDITIONS and tokens and self.branches.runs and not names:
            if head in ("let", SUM):
                self.calculate(head, tokens[1:])
                return
            if command.joined in _PIPES and command.document is None:
                command = replace(command, document=piped)
            else:
                before = ()
            tokens = self.with_input(replace(command, tokens=tokens), before)
            self.command(replace(command, tokens=tokens), head)

    def with_input(self, command: Command, before: Sequence[Token]) -> list[Token]:
        """Words of a command, and the script that it reads from its input, if it is a shell.

        Args:
            before: words of the command whose output is its input; () = none.
        """
        if not (command.document or command.source or before):
            return command.tokens
        words, _ = self.words_and_variables(command.tokens)
        if not words or words[0] in self.functions.bodies or not reads_script(words):
            return command.tokens
        script, names = command.document, list[str]()
        if script is None and command.source is not None:
            names = ["".join(self.fields(command.source))]
        elif script is None and before:
            printed, _ = self.words_and_variables(before)
            is_cat = printed[:1] == ["cat"] and not any(word[:1] == "-" for word in printed)
            names = printed[1:] if is_cat else []
            if not names:
                self.sourced[f"what {' '.join(printed)[:80]} prints"] = None
        variables = self.known_files()
        if names and all(name in variables for name in names):
            script = (WordPiece("\n".join(variables[name] for name in names), "'"),)
        self.sourced |= {name[:80]: None for name in names if name and name not in variables}
        if script is None:
            return command.tokens
        quoted = tuple(WordPiece(piece.text, piece.quote or '"') for piece in script)
        return [*command.tokens, (WordPiece("-c", "'"),), quoted]

    def bracket(self, joined: str) -> None:
        """Subshells that begin and end between two commands; one changes no variable outside."""
        for letter in joined.replace("()", ""):
            if letter == "(":
                self.count("".join(self.variables))
                self.subshells.append((dict(self.variables), set(self.exported)))
            elif letter == ")" and self.subshells:
                self.leave(len(self.subshells) - 1)

    def leave(self, depth: int) -> None:
        """Ends subshells until so many are open."""
        while len(self.subshells) > depth:
            self.variables, self.exported = self.subshells.pop()
            self.exported_copy = frozenset()
            self.copy = None

    def call(self, name: str, arguments: list[str] | None) -> None:
        """Carries out a function.

        Args:
            arguments: those of the call; None = they are not known.
        """
        if self.depth >= MOST_NESTED:
            return
        outer = self.arguments, self.local
        self.arguments, self.local = arguments, {}
        body = self.functions.bodies[name]
        self.spend(1 + len(body))
        self.inside(body)
        self.ended = False
        self.restore(self.local)
        self.arguments, self.local = outer

    def inside(self, read: Iterable[tuple[Command, bool]]) -> None:
        """Carries out commands that have branches, loops and brackets of their own."""
        outer = self.branches, self.loops, len(self.subshells)
        self.depth += 1
        self.loops = self.loops_around()
        self.branches = Branches(self.condition_words, unsure=self.branches.is_unsure)
        self.follow(read)
        self.leave(outer[2])
        self.branches, self.loops, _ = outer
        self.depth -= 1

    def loops_around(self) -> dict[str, int]:
        """Variables of the loops that are open -> how many values they take, 0 = not known."""
        names = [name for name in self.branches.loops if name not in self.variables]
        return {**self.loops, **{name: len(self.looped.get(name, ())) for name in names}}

    def calls(self, words: Sequence[Word], assigned: Sequence[Assignment] = ()) -> bool:
        """Whether the words call a function; it is carried out, once for each value of a loop's
        variable that is among its arguments.

        Args:
            assigned: variables that have values for this call alone.
        """
        name = next(iter(self.fields(words[0])), "") if self.functions.bodies and words else ""
        if name not in self.functions.bodies:
            return False
        self.called.add(name)
        apart, held = self.apart, self.variables
        if apart:
            self.count("".join(held))
            self.variables = dict(held)
        self.apart = False
        outer = {item.name: self.variables.get(item.name) for item in assigned}
        self.assign_all(assigned)
        used = dict.fromkeys(
            match[1] or match[2]
            for word in words[1:]
            for part in word
            if part.quote != "'"
            for match in _NAMED.finditer(part.text)
        )
        loops = [
            variable
            for variable in used
            if self.looped.get(variable) and variable not in self.variables
        ]
        turns = itertools.product(*(self.looped[variable] for variable in loops))
        for values in itertools.islice(turns, MOST_STEPS):
            self.put(dict(zip(loops, values, strict=True)))
            arguments = [field for word in words[1:] for field in self.fields(word)]
            self.count(arguments)
            start = len(self.runs)
            self.call(name, arguments)
            made = [run.words for run in self.runs[start:]]
            if made and not any(map(option_count, made)):  # its body says nothing of options
                self.add([name, *arguments])
        self.restore(outer | dict.fromkeys(loops))
        self.apart = apart
        if apart:
            self.variables, self.copy = held, None
        return True

    def add(self, words: list[str], assigned: Mapping[str, str] = MappingProxyType({})) -> None:
        """A command is carried out now."""
        if self.copy is None and self.copies < MOST_COPIES:
            self.copy, self.copies = dict(self.variables), self.copies + 1
        variables = self.variables if self.copy is None else self.copy
        if len(self.exported) != len(self.exported_copy):
            self.exported_copy = frozenset(self.exported)
        loops, exported = self.loops_around(), self.exported_copy
        self.runs.append(ShellRun(words, assigned, variables, loops=loops, exported=exported))

    def shift(self, words: Sequence[Word]) -> None:
        """``shift``: the first arguments of the script or of a call fall away.

        Raises:
            SilicastError: nobody knows how many, or whether.
        """
        if not self.arguments:
            return
        by = "".join(f for word in words for f in self.fields(word)) or "1"
        if not by.isdecimal() or len(by) > 9:
            raise lost(f"shift {by[:40]}")
        if self.branches.is_unsure or self.branches.in_loop:
            raise lost("shift in a loop, or where a condition holds of which it is not known,")
        if int(by) <= len(self.arguments):  # else the shell changes nothing
            self.count(self.arguments)
            self.arguments = self.arguments[int(by) :]

    def command(self, command: Command, head: str) -> None:
        tokens = command.tokens
        assigned = [token for token in tokens if isinstance(token, Assignment)]
        words = [token for token in tokens if not isinstance(token, Assignment)]
        if head in _DECLARES:
            self.declared(head, [plain(word) for word in words[1:]], assigned)
        if assigned and (len(assigned) == len(tokens) or head in _DECLARES):
            self.assign_all(assigned)
        elif command.joined not in _PIPES and command.document and plain(words[0]) == "read":
            self.read_input(words, assigned, self.text(command.document))
        elif head in _WRITERS and command.document is not None:
            self.piped = self.files.written_by(words, command)
        elif head in ("exit", "return"):
            self.ended = self.branches.is_certain(command.joined) and not self.subshells
        elif head in self.builtins:
            self.builtins[head](words[1:])
        elif head in PRINTS and command.target is None:
            self.piped, text = echoed(tokens), self.words_of(tokens)
            if self.printed is not None:
                self.printed.append(text)
        elif head not in _DECLARES and not self.calls(words, assigned):
            if head not in PRINTS:
                self.start(tokens)
            if command.target is not None:
                self.files.add(command.target, echoed(tokens), appends=command.appends)

    def known_files(self) -> dict[str, str]:
        """Texts of files that the script wrote so far, with the variables as they were when one
        was last written.
        """
        return self.files.texts(self.fields, self.text)

    def output(self, inner: str) -> str | None:
        """What a substituted command prints; None = only running it would say."""
        if self.nested >= MOST_NESTED:
            return None
        self.nested += 1
        outer = self.apart
        parsed = list(itertools.islice(commands(inner), 2))
        text: str | None = None
        if len(parsed) == 1 and not any(isinstance(t, Assignment) for t in parsed[0].tokens):
            command, head = parsed[0], plain(parsed[0].tokens[0])
            self.apart = head not in self.functions.bodies
            if head == "cat" and command.document is not None:
                text = self.text(command.document)
            elif head in self.functions.bodies:
                text = self.printed_by(command)
            else:
                text = printed_text(head, self.words_of(command.tokens))
        self.nested -= 1
        self.apart = outer
        return text

    def printed_by(self, command: Command) -> str:
        """What a function prints; it changes nothing else."""
        outer = self.printed, self.runs, dict(self.variables)
        self.printed, self.runs = [], []
        self.count("".join(self.variables))
        self.calls([token for token in command.tokens if isinstance(token, tuple)])
        text = " ".join(self.printed)
        self.printed, self.runs, self.variables = outer
        self.copy = None
        return text

    def set(self, words: Sequence[Word]) -> None:
        """``set -- words`` gives the script, or the call, arguments of its own."""
        flags = list(map(plain, words[:2]))
        if re.fullmatch(r"-\w*a\w*", "".join(flags[:1])) or flags == ["-o", "allexport"]:
            self.exports_all = True
        if flags[:1] != ["--"]:
            return
        self.arguments = [field for word in words[1:] for field in self.fields(word)]
        self.count(self.arguments)

    def defaults(self, words: Sequence[Word]) -> None:
        """``: ${NAME:=value}`` does nothing but to put in its words."""
        for word in words:
            self.fields(word)

    def loop(self, tokens: list[Token]) -> None:
        """``for NAME in words``: one word is the variable's value; of several none is, nor of words
        that only running the script would tell.
        """
        if self.branches.beyond:
            return
        is_counted = plain(tokens[-1]) == SUM
        tokens = tokens[:-1] if is_counted else tokens
        names = [plain(token) for token in tokens[1:3]]
        if len(tokens) < 4 or names[1] != "in" or names[0] in self.fixed:
            return
        words = [f for token in tokens[3:] if isinstance(token, tuple) for f in self.fields(token)]
        self.count(words)
        self.restore({names[0]: None})
        if is_counted and self.branches.runs:
            self.counted.add(names[0])
        self.opened = names[0] if self.branches.runs else ""
        if any(map(unresolved, words)):
            self.looped[names[0]] = []
        elif len(words) == 1:
            self.put({names[0]: words[0]})
        else:
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
                    is_set = name in self.variables or name in self.looped or self.gives(name)
                    if not is_set:
                        self.missing[name] = None
                        self.branches.unsure()
            pieces = [
                "" if isinstance(text, str) and _NAMED.fullmatch(text) else text
                for text, _ in self.pieces_of(token)
            ]
            words.append(joined((piece, False) for piece in pieces))
        self.count(words)
        if words[:1] == [SUM]:
            if self.branches.asks:  # it is not carried out besides
                for name in names_set(" ".join(words[1:])):
                    self.forget(name)
            words[1:] = map(self.with_numbers, words[1:])
        return words

    def start(self, tokens: Sequence[Token]) -> None:
        """Carries out a command, and those of a shell that it starts."""
        words, assigned = self.words_and_variables(tokens)
        words = remote_in(long_names(words))
        self.count(words)
        if words[:1] == ["eval"]:
            self.evaluate(" ".join(words[1:]))
            return
        if words and words[0] in _SOURCES:
            text = self.known_files().get(words[1]) if len(words) > 1 else None
            if text is None:
                self.sourced[" ".join(words[1:])] = None
            else:
                self.evaluate(text)
            return
        at = file_at(words) if words[:1] and words[0] in TAKE_SCRIPTS else len(words)
        if at < len(words) and words[at] in (files := self.known_files()):
            command_text, text = shlex.join(words[at + 1 :]), files[words[at]]
            words = [words[0], "-c", f"set -- {command_text}\n{text}" if command_text else text]
        self.add(words, assigned)
        inner = script_in(words)
        if inner and self.level < MOST_NESTED:
            self.within(inner, assigned, words[: words.index(inner)])

    def evaluate(self, text: str) -> None:
        """Commands of a text, in this shell."""
        if self.depth < MOST_NESTED:
            self.count(text)
            self.inside(with_names(commands(text)))
            self.functions.end()

    def within(self, inner: str, assigned: Mapping[str, str], around: list[str]) -> None:
        """Commands of a shell that a command starts, which changes no variable of this one.

        Args:
            assigned: variables of the command; around: its words before the shell's script.
        """
        apart = is_apart(around)
        exported_names = (
            self.fixed if apart else self.variables if self.exports_all else self.exported
        )
        environment = {
            name: self.variables[name] for name in exported_names if name in self.variables
        }
        environment |= {} if apart else assigned
        environment |= given_in(around, self.variables)
        reader = ScriptReader(environment, self.fixed)
        reader.size, reader.steps, reader.level = self.size, self.steps, self.level + 1
        reader.read(inner)
        self.size, self.steps = reader.size, reader.steps
        self.looped = {**reader.looped, **self.looped}
        self.branched |= reader.branched
        self.missing |= reader.missing
        self.sourced |= reader.sourced
        before = around if around[0] in LAUNCHERS else []
        self.runs += (
            replace(
                run,
                words=[*before, *run.words],
                assigned=run.assigned if apart else {**assigned, **run.assigned},
                around=(*around, *run.around),
                apart=apart or run.apart,
                loops={**self.loops_around(), **run.loops},
            )
            for run in reader.runs
        )
