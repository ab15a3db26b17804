"""Forms of bash that are followed exactly, and those whose values are left to the shell."""

from __future__ import annotations

import time

import pytest

from silicast.formats.shell_branches import truth_of
from silicast.formats.shell_options import unresolved
from silicast.formats.shell_script import Script

FOLLOWED = [
    ("GPUS=0,1,2,3\nC=${GPUS//[^,]/}\nx $(( ${#C} + 1 ))", [["4"]]),
    ("GPUS=0\nC=${GPUS//[^,]/}\nx $(( ${#C} + 1 ))", [["1"]]),
    (
        "A=a.b+c\nx ${A//[^a-z]/_} ${A//[!a-z]/_} ${A%%[^a-z]*} ${A#[^b]}",
        [["a_b_c", "a_b_c", "a", ".b+c"]],
    ),
    (
        "declare -A M=([a]=1)\nM=([b]=2)\nx ${M[a]:-no} ${M[b]} ${#M[@]} ${!M[@]}",
        [["no", "2", "1", "b"]],
    ),
    ("declare -A M=([a]=1 [b]=2)\nunset M\nx ${M[a]:-no} ${M[@]:-no}", [["no", "no"]]),
    ("declare -A M=([a]=1 [b]=2)\nunset M[a]\nx ${M[a]:-no} ${#M[@]} ${M[@]}", [["no", "1", "2"]]),
    ("f() { local -A M=([a]=1); x ${M[a]}; }\nf\nx ${M[a]:-no} ${M[@]:-no}", [["1"], ["no", "no"]]),
    (
        """declare -A M=([a]=5)
f() { local -A M=([b]=1); x ${M[a]:-no} ${M[b]}; }
f
x ${M[a]} ${M[b]:-no} ${#M[@]}""",
        [["no", "1"], ["5", "no", "1"]],
    ),
    ("f() { local T; T=4; }\nT=2\nf\nx $T", [["2"]]),
    ("f() { declare -gA M=([a]=1); }\nf\nx ${M[a]:-no}", [["1"]]),
    (
        "A=(a b)\nA[1]=z\nA[5]=q\nx ${A[@]} ${#A[@]} ${A[5]} ${A[4]:-no} ${!A[@]}",
        [["a", "z", "q", "3", "q", "no", "0", "1", "5"]],
    ),
    ("T[70]=8\nT[7]=1\nx ${T[7]} ${T[70]} ${T[@]} ${T[8]:-no}", [["1", "8", "1", "8", "no"]]),
    (
        'A=(a b c)\nunset "A[1]"\nx ${A[@]} ${#A[@]} ${A[2]} ${A[1]:-no}',
        [["a", "c", "2", "c", "no"]],
    ),
    ('A=(--tensor-parallel-size 4)\nunset "A[0]" "A[1]"\nx -- ${A[@]}', [["--"]]),
    ("declare -A M=([a]=1)\nM[a]+=5\n((M[a]+=1))\nx ${M[a]}", [["16"]]),
    ("A=(1 2)\ni=1\n((A[i]*=4))\nA[i-1]=7\nx ${A[@]}", [["7", "8"]]),
    ("A=(a)\nA+=(b c)\nA+=d\nx ${A[@]} $A", [["ad", "b", "c", "ad"]]),
    (
        "A=a.b.c\nx ${A/#a/Z} ${A/%c/Z} ${A/#b/Z} ${A/%?} ${A/#/x-} ${A/%/-x}",
        [["Z.b.c", "a.b.Z", "a.b.c", "a.b.", "x-a.b.c", "a.b.c-x"]],
    ),
    ("A='a#b#'\nx ${A//#b/Z}", [["aZ#"]]),
    ("D=a/b\nA=a/b/c\nx ${A/$D/x}", [["x/c"]]),
    (
        'M=\'a b\'\nx "${M//\' \'/-}" "${M//" "/_}" ${M/a/"n"} "${M%\' b\'}"',
        [["a-b", "a_b", "n", "b", "a"]],
    ),
    (
        "M=org/Qwen3-8B\nx ${M//\\//--} ${M#org\\/} ${M/-/.}",
        [["org--Qwen3-8B", "Qwen3-8B", "org/Qwen3.8B"]],
    ),
    (
        "A=(abc d)\nx ${#A} ${#A[0]} ${#A[*]} ${A} ${A:1} ${A%c}",
        [["3", "3", "2", "abc", "bc", "ab"]],
    ),
    ('A=abc\nx "${A: -9}" "${A: -2}" "${A:1:0}"', [["", "bc", ""]]),
    ('A=(a b c d)\nx "${A[@]:1:2}" "${A[*]:2}" "${A[@]: -9}"', [["b", "c", "c d"]]),
    ("set -- a b c\nx ${#@} ${#1}", [["3", "1"]]),
    ("read -r A B <<EOF\n1 2\n3 4\nEOF\nx $A $B", [["1", "2"]]),
    ("read -p prompt T <<< 4\nx $T", [["4"]]),
    ("read -ra G <<EOF\n1 2\n3 4\nEOF\nx ${#G[@]}", [["2"]]),
    ('read -r -t 5 A B <<< "1 2"\nx $A $B', [["1", "2"]]),
    ('read -r -d "" A B <<< "1 2"\nx $A $B', [["1", "2"]]),
    ('S=,\nIFS=$S read -r A B <<< "1,2"\nx $A $B', [["1", "2"]]),
    ('read A B <<< "  1   2   3 "\nx "$A" "$B"', [["1", "2   3"]]),
    ('IFS=, read A B <<< "1,2,"\nx $A $B', [["1", "2"]]),
    ('IFS=, read A B <<< "1,2,3,"\nx $A $B', [["1", "2,3,"]]),
    ('IFS=, read -a P <<< "x,,y,"\nx ${#P[@]} ${P[2]}', [["3", "y"]]),
    ('IFS=" ," read -r A B C <<< "1, 2,3"\nx $A $B $C', [["1", "2", "3"]]),
    ('IFS= read -r A <<< "  1 "\nx "$A"', [["  1 "]]),
    ("x $((-7/2)) $((-7%3)) $((7/-2)) $((7%-3)) $((-8/-3))", [["-3", "-1", "-3", "1", "2"]]),
    ("A=-7\n((A/=2))\nx $A $((A%2))", [["-3", "-1"]]),
    ("A=abc\nA=(x y)\nx ${A[1]}", [["y"]]),
    ('A=(a b)\nIFS=,\nx "${A[*]}" ${A[*]} "${A[@]}"', [["a,b", "a", "b", "a", "b"]]),
    (
        "L=0,1,2\nOLD=$IFS\nIFS=','\nx $L\nIFS=$OLD\nx $L\nB=\"a b\"\nx $B",
        [["0", "1", "2"], ["0,1,2"], ["a", "b"]],
    ),
    ('IFS=:\nread -ra P <<< "x:y z"\nunset IFS\nx "${P[1]}" ${P[1]}', [["y z", "y", "z"]]),
    ('IFS=\nA="a b"\nx $A', [["a b"]]),
    ("IFS=$'\\n'\nA=$'a b\\nc\\'d'\nx $A", [["a b", "c'd"]]),
    ("x ${A:=5} $A ${B=}$B\necho ${C:=2}\nx $C", [["5", "5"], ["2"]]),
    ('A=""\n: ${A:=1} "${B:=2}"\nx $A $B ${A=3}', [["1", "2", "1"]]),
    ("x $((010)) $((0x10)) $((2#101)) $((2**3**2)) $((-2**2))", [["8", "16", "5", "512", "4"]]),
    ("N=3\nx $((N>2?8:4)) $((N<<2)) $((!N)) $((N&1)) $(( (N>1)+1 ))", [["8", "12", "0", "1", "2"]]),
    ("N=3\nif ((!N)); then A=1; elif (( !(N > 4) && N % 2 )); then A=2; fi\nx $A", [["2"]]),
    ("N=0\n((!N)) && A=1 || A=2\n((N)) && B=1 || B=2\nx $A $B", [["1", "2"]]),
    ("A=()\nfor i in a b; do A+=(--$i); done\nx ${A[@]} $i", [["--a", "--b", "b"]]),
    (
        'A=""\nfor ((i=0; i<3; i++)); do A="$A $i"; N=$((N+i)); ((M+=2)); done\nx $A',
        [["0", "1", "2"]],
    ),
    (
        "N=0\nfor i in 1 2 3; do\n  if ((i == 2)); then ((N+=10)); else N=$((N+1)); fi\ndone\nx $N",
        [["12"]],
    ),
    (
        "declare -A M=([tp]=2 [n]=8)\nfor k in ${!M[@]}; do A+=(-$k ${M[$k]}); done\nx ${A[@]}",
        [["-n", "8", "-tp", "2"]],
    ),
    ("declare -A M=([tp]=2 [layers]=8 [z]=1)\nx ${M[@]}", [["1", "2", "8"]]),
    ("A[5]=x\nA[2]=y\nx ${!A[@]} ${A[@]}", [["2", "5", "y", "x"]]),
    ("a=2\nff=3\nx $((16#a)) $((16#ff)) $((a*16#A))", [["10", "255", "20"]]),
    ('N="2+3"\nx $((2**N)) $((N*2)) $((2**$N))', [["32", "10", "7"]]),
    ("N=-3\nx $((2-N)) $((N*N)) $((-N))", [["5", "9", "3"]]),
    ("x $((9223372036854775807)) $((2**62))", [["9223372036854775807", str(2**62)]]),
    ("A=0\n[ 1 = 2 ] && for i in 1 2; do A=$i; done\nx $A", [["0"]]),
    ("A=0\nfalse && for i in 1 2; do A=$i; done\nx $A", [["0"]]),
    ("A=0\n[ 1 = 2 ] && if [ 1 = 1 ]; then A=2; fi\nx $A", [["0"]]),
    ("A=0\n[ 1 = 2 ] && case a in a) A=2;; esac\nx $A", [["0"]]),
    ("A=0\nfor i in 1 2; do A=5; done | cat\nx $A", [["0"]]),
    ("A=0\nfor i in 1 2; do A=5; done &\nx $A", [["0"]]),
    ("x $(echo ${N:=4})\nx ${N:-7}", [["4"], ["7"]]),
    ("echo ${N:=3} | cat\nx ${N:-7}", [["7"]]),
    ("f() { : ${N:=4}; x $N; }\nf | cat\nx ${N:-1}", [["4"], ["1"]]),
    ("N=1\n((N<<=3, N|=1, N^=3))\nx $N", [["10"]]),
    ('U=1\n[ -n "$U" ] && { A=3; B=2; } || { A=4; B=5; }\nx $A $B', [["3", "2"]]),
    ('U=""\n[ -n "$U" ] && { A=3; B=2; } || { A=4; B=5; }\nx $A $B', [["4", "5"]]),
    ("A=1\n[ 1 = 1 ] || { A=2; exit; }\nx $A", [["1"]]),
]
"""A script, and the arguments of each ``x`` as bash 5.2.15 gives them (``shopt -s extglob``)."""
LEFT = [
    "A='a*b'\nx ${A#a\\*}",  # bash: b
    "A=abc123\nx ${A%%+([0-9])}",  # bash: abc
    "A=a1\nx ${A%[[:digit:]]}",  # bash: a
    "A=a-b\nx ${A/-/\\/}",  # bash: a/b
    "A=banana\nx ${A^^[an]}",  # bash: bANANA
    'A=\'a*b*c\'\nx "${A#"a*"}"',  # bash: b*c
    "A='a*b'\nx ${A//'*'/-}",  # bash: a-b
    "A=abc\nx ${A/b/[&]}",  # bash: a[b]c
    "A=a/b\nx ${A//[^/]/}",  # bash: a/b
    "A=a/b\nx ${A////-}",  # bash: a-b
    "A=abc\nB=${A%%+(c)}\nx ${#B}",  # bash: 2
    "A=abc\nB=${A%%+(c)}\nx ${B:1}",  # bash: b
    "A=abc\nB=${A%%+(c)}\nx ${B%b}",  # bash: a
    'A=(a b c)\nunset "A[-1]"\nx ${A[@]}',  # bash: a
    "read -n 1 A <<< 12\nx $A",  # bash: 1
    "read -d , A <<< 1,2\nx $A",  # bash: 1
    "read A <<< '1\\2'\nx $A",  # bash: 12
    "N=0\nwhile ((N < 3)); do N=$((N+1)); done\nx $N",  # bash: 3
    "A=$(printf '%02d' 7)\nx $A",  # bash: 07
    "x $((08))",  # bash fails
    "x $((1_0))",  # bash fails
    "x $((0o17))",  # bash fails
    "x $((16#0x1F))",  # bash fails
    "x $((0#12))",  # bash fails
    "x $((1<<63))",  # bash: -9223372036854775808
    "x $((2**63))",  # bash: -9223372036854775808
    "x $((9999999999999999999))",  # bash: -8446744073709551617
    f"x $(({'+'.join(['10'] * 77)}))",  # bash: 770
    "N=3\nx $((++N)) $N",  # bash: 4 4
    "N=3\nx $((N++ + 1)) $N",  # bash: 4 4
    "N=3\nx $((--N)) $N",  # bash: 2 2
    "N=3\n: $((N+=3))\nx $N",  # bash: 6
    "((A=B=2))\nx $A $B",  # bash: 2 2
    "N=3\nif (( --N )); then :; fi\nx $N",  # bash: 2
    "N=0\nwhile (( N++ < 3 )); do :; done\nx $N",  # bash: 4
    "for ((i=0; i<3; i++)); do A=$i; done\nx $i",  # bash: 3
    "for ((i=0; i<1; i++)); do A=$i; done\nx $i",  # bash: 1
    "i=0\nfor h in a b c; do R[i++]=$h; done\nx ${R[0]} $i",  # bash: a 3
    "x $'\\x41' $'\\101'",  # bash: A A
    "x ${A:-$'q'}",  # bash: q
]


def runs(text: str) -> list[list[str]]:
    return [list(run.words[1:]) for run in Script.parse(text).commands if run.words[0] == "x"]


@pytest.mark.parametrize(("text", "expected"), FOLLOWED)
def test_what_bash_gives(text: str, expected: list[list[str]]) -> None:
    assert runs(text) == expected


@pytest.mark.parametrize("text", LEFT)
def test_no_value_is_made_up(text: str) -> None:
    """Values that these forms have in bash are not known here, and are not other values."""
    (words,) = runs(text)
    assert all(map(unresolved, words))


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("1 -eq --5", None),  # bash: integer expression expected
        ("1 -eq ---", None),
        ("010 -eq 8", None),  # true in [[, false in [
        ("-5 -lt -4", True),
        ("0 -eq -0", True),
        ("1 -eq \u0661", None),
    ],
)
def test_numbers_of_tests(text: str, truth: bool | None) -> None:
    assert truth_of(text.split()) is truth


def test_long_inputs_take_no_longer_than_their_text() -> None:
    names = " ".join(f"A{at}" for at in range(4000))
    blanks = " " * 100_000
    keys = "".join(f"declare -A M{at}\n" for at in range(2000))
    functions = "".join(f"f{at}() {{ :; }}\n" for at in range(300))
    start = time.process_time()
    Script.parse(f"read {names} <<< 'x{blanks}y'\n{keys}{functions}x $A1")
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "loop",
    [
        "for i in {1..600}; do A+=(http://node$i:8000); done",
        "for i in {1..4000}; do A=$A$i; B=2; C=3; D=4; E=5; F=6; G=7; H=8; done",
    ],
)
def test_a_loop_that_costs_too_much_leaves_its_variables_to_the_shell(loop: str) -> None:
    script = Script.parse(f"{loop}\nB=3\nfor i in 1 2; do :; done\nx $B ${{A[0]}}")
    (run,) = [run for run in script.commands if run.words[0] == "x"]
    assert run.words[1] == "3"
    assert unresolved(run.words[2])


def test_branches_that_a_program_decides_are_listed() -> None:
    for condition in ("grep -q a f", "python check.py", "nvidia-smi | grep -q H100"):
        script = Script.parse(f"{condition} && A=1 || A=2\nx $A")
        assert list(script.branched) == ["A"], condition
