"""Arguments in shell scripts."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.formats._shell_sums import integer_of
from silicast.formats.shell_options import options
from silicast.formats.shell_script import Script


def words(text: str) -> list[str]:
    return Script.parse(text).command()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\nA=2\npython t.py --x $A", ["python", "t.py", "--x", "2"]),
        ("A='a b'\npython t.py --x \"$A\"", ["python", "t.py", "--x", "a b"]),
        ('O="--x 1"\nO="$O --y 2"\npython t.py $O', ["python", "t.py", "--x", "1", "--y", "2"]),
        ("O=(--x 1)\nO+=(--y)\npython t.py ${O[@]}", ["python", "t.py", "--x", "1", "--y"]),
        ("N=4\npython t.py --x $((N * 2 + 1))", ["python", "t.py", "--x", "9"]),
        ("python t.py --x ${N:-7} --y $N", ["python", "t.py", "--x", "7", "--y", "$N"]),
        ("export A=3; python t.py --x $A > log", ["python", "t.py", "--x", "3"]),
        ("python t.py \\\n  --x 1 \\\n  # no\n", ["python", "t.py", "--x", "1"]),
        ("echo --y\npython pretrain.py --x 1\n", ["python", "pretrain.py", "--x", "1"]),
        ("--x 1\n--y 2", ["--x", "1", "--y", "2"]),
        ("python t.py --x <DATA> --y 2", ["python", "t.py", "--x", "<DATA>", "--y", "2"]),
        (
            'A=(--x <MY DATA>)\npython t.py "${A[@]}" -y',
            ["python", "t.py", "--x", "<MY DATA>", "-y"],
        ),
        (
            'O="--x <p/a.t b> -y"\nsh -c "python t.py $O"',
            ["python", "t.py", "--x", "<p/a.t b>", "-y"],
        ),
        ("python t.py --x 1 <in >out", ["python", "t.py", "--x", "1"]),
    ],
)
def test_what_a_shell_would_give(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_variables_of_branches_are_named() -> None:
    script = Script.parse("A=1\nif [ -f data ]; then\n  C=2\nelse\n  C=4\nfi\nD=3")
    assert script.branched == ("C",)
    assert dict(script.variables) == {"A": "1", "C": "2", "D": "3"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "M=Qwen/Qwen3-8B\nx ${M##*/} ${M%%/*} ${M//\\//_} ${M,,} ${#M} ${M:0:4} ${M: -2}",
            "Qwen3-8B Qwen Qwen_Qwen3-8B qwen/qwen3-8b 13 Qwen 8B",
        ),
        ("A=a.b.json\nx ${A%.*} ${A#*.} ${A/a/c} ${A^^}", "a.b b.json c.b.json A.B.JSON"),
        ("declare -A T=([a]=1 [b]=2)\nx ${#T[@]} ${T[b]} ${T[c]:-7} ${!T[@]}", "2 2 7 b a"),
        ("declare -A T\nT[x,1]=3\nT['y']=4\nk=x\nx ${T[$k,1]} ${T[y]}", "3 4"),
        ("A=(3 4 5)\nA[3]=9\nx ${A[0]} ${A[-1]} ${A[@]:1:2} ${#A[@]}", "3 9 4 5 4"),
        ("A=(2 4)\nI=1\nx $((A[I]*2)) ${A[$I]} ${A[I-1]}", "8 4 2"),
        ("V=T\nT=5\nx ${!V}", "5"),
        ("x $(( ${G:-8} * ${N:-2} ))", "16"),
        ("N=2\nif (( N > 1 )); then A=2; else A=1; fi\nx $A", "2"),
        ("N=1\n(( N == 1 && N < 3 )) || A=--no\n(( N != 1 )) || B=--yes\nx $A $B", "$A --yes"),
        ("N=3\n(( N += 2 ))\n((M = N * 2))\nx $N $M", "5 10"),
        ("M=a/b.sh\nx $(dirname $M) $(basename $M .sh)", "a b"),
        ("read -r A B <<< '3 4'\nIFS=, read -ra P <<< 'a,b'\nx $A $B ${P[1]}", "3 4 b"),
        ("N=$(nvidia-smi -L | wc -l)\nx $N", "$N"),
    ],
)
def test_what_bash_makes_of_words(text: str, words: str) -> None:
    """What bash 5.2 prints of the same texts, but for values that only running them would say."""
    assert Script.parse(text).runs[-1] == ["x", *words.split()]


def test_a_stated_value_stands_for_what_a_command_prints() -> None:
    script = Script.parse("N=$(nvidia-smi -L | wc -l)\nx --tp $N", {"N": "8"})
    assert script.command() == ["x", "--tp", "8"]


@pytest.mark.parametrize(("given", "c"), [({}, None), ({"B": "1"}, "2")])
def test_a_condition_follows_its_variables(given: dict[str, str], c: str | None) -> None:
    script = Script.parse('A=1\nif [ "$B" = 1 ]; then\n  C=2\nfi\nD=3', given)
    assert script.missing == (() if given else ("B",))
    assert script.variables.get("C") == c


BRANCHES = """
P=fp8 N=4
if [[ $P == "bf16" ]]; then A=(--bf16); elif [ "$P" = fp8 ] && [ $N -ge 4 ]; then
  A=(--bf16 --fp8 hybrid)
else
  A=(--fp16)
fi
case "$M" in
  7b|8b) A+=(--layers 32) ;;
  70b)
    A+=(--layers 80)
    if [ $N -gt 8 ]; then A+=(--tp 8); else A+=(--tp 4); fi
    ;;
  *) A+=(--layers 2) ;;
esac
[ -n "$X" ] && A+=(--x)
[ -z "$X" ] || A+=(--y)
[ "$N" -eq 4 ] && A+=(--four)
cd w || exit 1
python t.py ${A[@]}
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"M": "70b"}, "--bf16 --fp8 hybrid --layers 80 --tp 4 --four"),
        ({"M": "8b"}, "--bf16 --fp8 hybrid --layers 32 --four"),
        ({"M": "7b", "X": "1"}, "--bf16 --fp8 hybrid --layers 32 --x --y --four"),
        ({}, "--bf16 --fp8 hybrid --layers 2 --four"),
    ],
)
def test_the_branch_that_a_shell_would_take(given: dict[str, str], expected: str) -> None:
    command = Script.parse(BRANCHES, given).command()
    assert command == ["python", "t.py", *expected.split()]


@pytest.mark.parametrize(
    "text",
    [
        'for a in "$@"; do case $a in --tp=*) T="${a#*=}";; esac; done\n',
        "while [[ $# -gt 0 ]]; do\n case $1 in\n --tp) T=$2; shift 2;;\n *) shift;;\n esac\ndone\n",
        'while getopts "t:" o; do T=$OPTARG; done\n',
        "until false; do T=${T:-2}; break; done\n",
    ],
)
def test_a_script_is_started_without_arguments(text: str) -> None:
    assert words(f"{text}T=${{T:-2}}\npython t.py --tp $T") == ["python", "t.py", "--tp", "2"]


def test_what_slurm_and_loops_set() -> None:
    text = "#SBATCH -N 4 --gpus-per-node=h100:8\nfor T in 1 2; do\npython t.py --n $SLURM_NNODES"
    text += " --g $SLURM_GPUS_ON_NODE --t $T\ndone\n"
    script = Script.parse(text)
    assert script.command()[2:] == ["--n", "4", "--g", "8", "--t", "$T"]
    assert script.looped == {"T": ["1", "2"]}
    assert Script.parse(text, {"T": "2"}).command()[-1] == "2"


def test_a_script_cannot_grow_without_end() -> None:
    bomb = "A=xxxxxxxx\n" + 'A="$A$A"\n' * 40 + "python t.py $A"
    with pytest.raises(SilicastError) as caught:
        words(bomb)
    assert caught.value.kind == "limit"


@given(st.text(alphabet="AB=$(){}[]@\"'\\;#-+* \n1.py", max_size=120))
def test_any_text_is_read(text: str) -> None:
    with contextlib.suppress(SilicastError):
        options(words(text))


@given(st.integers(0, 99), st.integers(1, 99), st.integers(0, 99))
def test_sums_follow_the_usual_order(a: int, b: int, c: int) -> None:
    assert integer_of(f"{a} + {b} * {c}") == a + b * c
    assert integer_of(f"({a} + {b}) * {c} / {b} % 7") == (a + b) * c // b % 7
    assert integer_of(f"{a} ** 2 > {b} && !0") == (a**2 > b)


ARGUMENTS = ["torchrun", "t.py", "--tp", "2", "--bf16", "--lr", "1"]


@pytest.mark.parametrize(
    "text",
    [
        'A=(--tp 2 --bf16)\ntorchrun t.py "${A[@]}" --lr 1',
        'A=(--tp 2)\nB=("${A[@]}" --bf16)\nB+=(--lr 1)\ntorchrun t.py ${B[@]}',
        'A=("--tp 2" "--bf16 --lr 1")\ntorchrun t.py ${A[@]}',
        'P="t.py"\n[ -f "$P" ] || echo "no t.py --tp 1"\ntorchrun "$P" --tp 2 --bf16 --lr 1',
        "if ! test -f t.py --x; then\n  exit 1\nfi\nN=1 torchrun t.py --tp 2 --bf16 --lr 1",
        'A="--tp 2 --bf16"\nA+=" --lr 1"\nif [ $R -eq 0 ]; then torchrun t.py $A; fi',
        'C="torchrun t.py --tp 2 --bf16 --lr 1"\neval "$C"',
        'C="cd x && torchrun t.py --tp 2 --bf16 --lr 1"\nsrun -l bash -c "$C"',
        "cat > r <<END\npython o.py --a --b --c\nEND\n(torchrun t.py --tp 2 --bf16 --lr 1) 2>&1",
        "python make_data.py --out x\ntorchrun t.py --tp 2 \\\n  --bf16 --lr ${1:-1} &\nwait",
    ],
)
def test_ways_to_write_the_same_run(text: str) -> None:
    words = Script.parse(text).command()
    assert words[-len(ARGUMENTS) :] == ARGUMENTS


def test_a_quoted_element_stays_one_word_and_its_option_is_read() -> None:
    script = Script.parse('A=("--fp8 hybrid" --name "a b")\npython t.py "${A[@]}"')
    assert script.command() == ["python", "t.py", "--fp8 hybrid", "--name", "a b"]
    assert options(script.command()) == {"fp8": "hybrid", "name": "a b"}


def test_a_script_that_only_sets_variables_gives_their_words() -> None:
    assert Script.parse('A=(--x 1)\nB="--y 2"').command() == ["--x", "1", "--y", "2"]


def test_brackets_that_do_not_end_take_no_longer_than_the_text() -> None:
    start = time.process_time()
    for text in (
        "$(" * 100_000,
        "${" * 100_000,
        '"' + "$(" * 100_000,
        "A=(" * 50_000,
        "cat <<X " * 100_000,
    ):
        with contextlib.suppress(SilicastError):
            options(words(text))
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('set -- --tp 2 --bf16\nrun x.py "$@"', {"tp": "2", "bf16": ""}),
        ("set -euo pipefail\nrun x.py --tp 2", {"tp": "2"}),
        (': "${TP:=2}"\nrun x.py --tp $TP', {"tp": "2"}),
        ("TP=4\n: ${TP:=2}\nrun x.py --tp $TP", {"tp": "4"}),
        ("mpirun -np 16 python x.py --tp 2", {"ntasks": "16", "tp": "2"}),
        ("srun --ntasks-per-node 8 python x.py --n 2", {"ntasks-per-node": "8", "n": "2"}),
        (
            "srun -N2 --ntasks-per-node 8 sh -c 'python x.py --tp 2 --pp 2'",
            {"nodes": "2", "ntasks-per-node": "8", "tp": "2", "pp": "2"},
        ),
    ],
)
def test_arguments_of_launchers_and_of_the_script_itself(
    text: str, expected: dict[str, str]
) -> None:
    assert dict(options(Script.parse(text).command())) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("read -r -d '' A <<'E' || true\n--tp 2\n--pp $X\nE\nrun x.py $A", "--tp 2 --pp $X"),
        ("X=4\nread -d '' A <<E\n--pp $X\nE\nrun x.py $A", "--pp 4"),
        ("run x.py $(cat <<E\n--tp 2\nE\n)", "--tp 2"),
        ("f() {\n echo --tp 2\n echo -n --pp 3\n}\nrun x.py $(f)", "--tp 2 --pp 3"),
        ("function f {\n echo --tp 2\n}\nrun x.py --bf16 $(f)", "--bf16 --tp 2"),
        ("run x.py --tp $(nvidia-smi -L | wc -l)", "--tp $(nvidia-smi -L | wc -l)"),
    ],
)
def test_what_here_documents_and_functions_print(text: str, expected: str) -> None:
    assert " ".join(Script.parse(text).command()).removeprefix("run x.py ") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f() {\n local t=$1\n {\n run --tp $t\n } 2>&1 | tee log\n run --pp $2\n}\nf 4 2", "4 2"),
        ("function f {\n run --tp $1 --pp ${2:-3}\n}\nf 4", "4 3"),
        ("f() { run --tp $1; }\ng() { f $1; run --pp $2; }\ng 4 2", "4 2"),
        ('f() { run "$@"; }\nf --tp 4 --pp 2', "4 2"),
        ("N=4\nf() { run --tp $1 --pp 2; }\nf $N", "4 2"),
    ],
)
def test_functions_run_with_the_arguments_of_their_calls(text: str, expected: str) -> None:
    found = [options(words) for words in Script.parse(text).runs if words[0] == "run"]
    assert " ".join(value for each in found for value in each.values()) == expected


def test_each_call_of_a_function_is_a_run() -> None:
    runs = Script.parse("f() { run --tp $1; }\nf 4\nf 8\nf 4").runs
    assert [words for words in runs if words[0] == "run"] == [
        ["run", "--tp", "4"],
        ["run", "--tp", "8"],
    ]


def test_a_long_word_is_searched_for_functions_once() -> None:
    """From each of its letters on, the search would take hours."""
    assert Script.parse("a" * 500_000 + "\npython x.py --bf16").command()[0] == "python"


def test_a_script_is_started_without_arguments_of_its_own() -> None:
    assert Script.parse('python x.py --bf16 "$@" $*').command() == ["python", "x.py", "--bf16"]


def test_here_documents_are_files_that_a_script_writes() -> None:
    script = Script.parse(
        "N=3\ncat >a.json <<E && cat <<'F' >b.$N\n{$N}\nE\n[$N]\nF\n"
        "tee c <<G\nlast\nG\ncat <<H\nno\nH"
    )
    assert script.files == {"a.json": "{3}\n", "b.3": "[$N]\n", "c": "last\n"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat >a <<E\none\nE\ncat >>a <<E\ntwo\nE", "one\ntwo\n"),
        ("cat >a <<E\none\nE\ncat >a <<E\ntwo\nE", "two\n"),
        ("tee a <<E\none\nE\ntee -a a <<E >/dev/null\ntwo\nE", "one\ntwo\n"),
        ("cat <<E | tee a\none\nE", "one\n"),
        ("cat <<E | tee b a > /dev/null\none\nE", "one\n"),
        ("cat <<E | tee b | tee -a a\none\nE", "one\n"),
        ("cat <<E | cat > a\none\nE", "one\n"),
        ('X=5\necho x: 1 > a\necho "y: $X" >> a', "x: 1\ny: 5\n"),
        ("> b\ncat <<E\none\nE\ncat >> a <<E\ntwo\nE", "two\n"),
        # only a run would say what these hold
        ("cat >a <<E\none\nE\npython more.py >> a", None),
        ("cat >a <<E\none\nE\nprintf 'x: %s' 1 >> a", None),
        ("cat <<E | sed s/o/i/ > a\none\nE", None),
        ("cat b > a <<E\none\nE", None),
        ("cat a <<E\none\nE", None),
        ("python x.py > a\ncat >a <<E\none\nE", "one\n"),
    ],
)
def test_a_file_holds_what_all_commands_write_to_it(text: str, expected: str | None) -> None:
    """As bash leaves the file."""
    assert Script.parse(text).files.get("a") == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (r"\$X", "$X"),
        (r"$X\\$X", r"5\5"),
        (r"\`date\`", "`date`"),
        (r"a\n \" 'q' $X", r"""a\n \" 'q' 5"""),
        ("one \\\ntwo", "one two"),
    ],
)
def test_backslashes_in_here_documents(line: str, expected: str) -> None:
    assert Script.parse(f"X=5\ncat >a <<E\n{line}\nE").files == {"a": f"{expected}\n"}
    assert Script.parse(f"X=5\ncat >a <<'E'\n{line}\nE").files == {"a": f"{line}\n"}


def started(text: str, **given: str) -> list[str]:
    """Arguments of each run, as ``bash`` hands them over."""
    runs = Script.parse(text, given).runs
    return [" ".join(words[1:]) for words in runs if words[:1] == ["run"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f() { local n=$1; shift; run $n --tp $1 --mb $2; }\nf 2 4 1", ["2 --tp 4 --mb 1"]),
        ("set -- 2 4 1; run $1; shift; run --tp $1 --mb $2", ["2", "--tp 4 --mb 1"]),
        ("set -- 1 2 3 4 1; shift 3; run --tp $1 --mb $2", ["--tp 4 --mb 1"]),
        ("set -- 4 1; f() { run --tp $1; }\nf 2; run --pp $1", ["--tp 2", "--pp 4"]),
        ("f() { shift 4; run --tp $1; }\nf 1 2 3", ["--tp 1"]),  # bash leaves them all
        (
            'B="--gb 64"\nf() { name=$1; shift; run $B "$@"; }\nf small --bf16 --tp 4',
            ["--gb 64 --bf16 --tp 4"],
        ),
        (
            "f() { run --tp $1; }\ng() { f $1; f $2; }\ng 4 2\ng 8 1",
            ["--tp 4", "--tp 2", "--tp 8", "--tp 1"],
        ),
        ("f() { run --tp $1 --mb $M; }\nM=1; f 2\nM=3; f 4", ["--tp 2 --mb 1", "--tp 4 --mb 3"]),
        ("f() { run --tp $T --mb $1; }\nT=8\nT=4 f 1\nf 2", ["--tp 4 --mb 1", "--tp 8 --mb 2"]),
        ('main() { f() { run --tp $1; }\nf 4; }\nmain "$@"', ["--tp 4"]),
        ('f() { echo "$@"; "$@"; }\nf run --tp 4', ["--tp 4"]),
        (
            "f() { run --tp $1 --mb $2; }\nfor b in 128 256; do f 2 $b; done",
            ["--tp 2 --mb 128", "--tp 2 --mb 256"],
        ),
        ('f() { run "${@:4}"; }\nf 1 2 3 --tp 4', ["--tp 4"]),
        ("f() { run ${@:2:2} ${10}; }\nf 1 --tp 4 4 5 6 7 8 9 ten 11", ["--tp 4 ten"]),
        ('f() { run "$*"; }\nf a b', ["a b"]),
        ("f() { local m=$2; run --tp $1 --mb ${m:-3} ${2-4} $2; }\nf 8", ["--tp 8 --mb 3 4"]),
        ("f() { if [ $1 = p ]; then shift; fi; run $1; }\nf p q\nf r", ["q", "r"]),
    ],
)
def test_arguments_fall_away_and_calls_have_their_own(text: str, expected: list[str]) -> None:
    assert started(text) == expected


@pytest.mark.parametrize(
    "body",
    [
        "shift $N; run --tp $1",
        "for a in 1 2; do shift; done; run --tp $1",
        "if [ -f x ]; then shift; fi; run --tp $1",
        "while [ $# -gt 0 ]; do case $1 in --tp) T=$2; shift 2;; esac; done; run --tp ${T:-1}",
    ],
)
def test_arguments_that_only_running_would_tell_are_refused(body: str) -> None:
    with pytest.raises(SilicastError, match="cannot be followed without running it"):
        started(f"f() {{ {body}; }}\nf 1 2 3")


def test_a_value_that_must_be_given_is_taken() -> None:
    assert started("run --tp ${TENSOR:?set it}", TENSOR="4") == ["--tp 4"]
    assert started("run --tp ${TENSOR:?set it}") == ["--tp ${TENSOR:?set it}"]


def test_every_call_of_a_function_is_read() -> None:
    calls = "\n".join(f"f {number}" for number in range(1, 13))
    assert started(f"f() {{ run --tp $1; }}\n{calls}") == [f"--tp {n}" for n in range(1, 13)]


def test_calls_without_end_are_refused() -> None:
    functions = "".join(f"f{n}() {{ {f'f{n + 1} 1;' * 40} }}\n" for n in range(8))
    for text in (functions + "f0 1", "f() { run $1; }\n" + "f 1\n" * 100_000):
        with pytest.raises(SilicastError, match="called too often") as caught:
            started(text)
        assert caught.value.kind == "limit"


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(0, 14))
def test_shift_leaves_what_stands_behind(numbers: list[int], by: int) -> None:
    words = [f"--n{position}={number}" for position, number in enumerate(numbers)]
    left = words[by:] if by <= len(words) else words
    call = " ".join(words)
    assert started(f'f() {{ shift {by}; run "$@"; }}\nf {call}') == [" ".join(left)]
    assert started(f'set -- {call}\nshift {by}\nrun "$@"') == [" ".join(left)]
