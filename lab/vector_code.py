"""Vector instructions of GELU as compilers and mathematical libraries make it; needs no GPU.

What ``[vector.operations]`` of ``catalog/designs/mi210-nest.toml`` and ``a100-nest.toml`` state. A
kernel of four elements a lane, as PyTorch's elementwise kernels have, is compiled with the vendor's
library of mathematical functions, and a quarter of its instructions are one element's. Waves hold
elements of both branches of a function, so both count. On CDNA an exponential or a reciprocal takes
four passes, and scalar instructions, loads and stores go through units of their own; on NVIDIA's
parts every instruction takes a slot of a scheduler.

``python -m lab.vector_code --llvm BIN --ocml FOLDER --nvidia FOLDER``: LLVM's programs (15.0.6 was
used), ROCm's ``ocml.bc`` and ``oclc_*.bc`` (Debian's rocm-device-libs 5.2.3), and ``bin/ptxas``,
``bin/nvdisasm``, ``lib/libdevice.10.bc`` (the backend of triton 3.6.0).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

LANES = 4  # elements a lane
QUARTER = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_")
POINTERS = "--opaque-pointers"
OCLC = (
    "correctly_rounded_sqrt_on",
    "daz_opt_off",
    "finite_only_off",
    "isa_version_90a",
    "unsafe_math_off",
    "wavefrontsize64_on",
)
"""What a HIP compiler links without options of its user's."""

_GELU = """
  %t.N = call float @FUNCTION(float %c.N)
  %u.N = fadd contract float %t.N, 1.0
  %w.N = fmul contract float %x.N, 0.5
  %y.N = fmul contract float %w.N, %u.N"""
FORMS: Mapping[str, tuple[str, str]] = {
    "gelu by tanh": ("tanh", """
  %x2.N = fmul contract float %x.N, %x.N
  %x3.N = fmul contract float %x2.N, %x.N
  %a.N = fmul contract float %x3.N, 0x3FA6E4E260000000
  %b.N = fadd contract float %x.N, %a.N
  %c.N = fmul contract float %b.N, 0x3FE9884540000000""" + _GELU),
    "gelu by erf": ("erf", """
  %c.N = fmul contract float %x.N, 0x3FE6A09E60000000""" + _GELU),
    "exp": ("exp", """
  %y.N = call float @FUNCTION(float %x.N)"""),
}  # fmt: skip
"""Name -> the library's function, and what becomes of a number ``x``."""
ELEMENT = """
  %h.N = extractelement <4 x half> %v, i32 N
  %x.N = fpext half %h.N to floatFORM
  %r.N = fptrunc float %y.N to half
  %o.N = insertelement <4 x half> LAST, half %r.N, i32 N"""
KERNEL = """
target triple = "TRIPLE"
declare float @FUNCTION(float)
declare i32 @INDEX()
define CALL void @kernel(ptr addrspace(1) noalias readonly %in, ptr addrspace(1) noalias %out) {
  %i = call i32 @INDEX()
  %j = zext i32 %i to i64
  %p = getelementptr inbounds <4 x half>, ptr addrspace(1) %in, i64 %j
  %q = getelementptr inbounds <4 x half>, ptr addrspace(1) %out, i64 %j
  %v = load <4 x half>, ptr addrspace(1) %pBODY
  store <4 x half> %o.3, ptr addrspace(1) %q
  ret void
}
"""


def source(form: str, words: Mapping[str, str]) -> str:
    """The kernel in LLVM's language; ``words`` replace what differs by vendor.

    >>> source("gelu by erf", {"FUNCTION": "f"}).count("call float @f")
    4
    """
    parts = []
    for n in range(LANES):
        last = f"%o.{n - 1}" if n else "undef"
        part = ELEMENT.replace("FORM", FORMS[form][1]).replace("LAST", last)
        parts.append(re.sub(r"(?<=\.)N\b|(?<=i32 )N\b", str(n), part))
    text = KERNEL.replace("BODY", "".join(parts))
    for word, stands_for in words.items():
        text = text.replace(word, stands_for)
    return text


def cdna_slots(assembly: str) -> float:
    """Passes of a lane that an element takes of a CDNA core's vector units.

    >>> cdna_slots("  v_add_f32 v0\\n  v_exp_f32_e32 v1\\n  s_mov_b32 s0\\n")
    1.25
    """
    names = re.findall(r"^\s+(v_\w+)", assembly, re.MULTILINE)
    return sum(4 if QUARTER.match(name) else 1 for name in names) / LANES


def sass_slots(listing: str) -> float:
    """Instructions of a lane that an element takes of an SM's schedulers.

    >>> sass_slots("  /*0000*/  @!P0 MOV R2 ;\\n  /*0010*/  EXIT ;\\n  /*0020*/  BRA X")
    0.5
    """
    names = re.findall(r"/\*[0-9a-f]{4}\*/\s+(?:@!?U?P\d+\s+)?([A-Z0-9_]+)", listing)
    return (names.index("EXIT") + 1) / LANES


def _run(*words: str | Path) -> str:
    return subprocess.run(
        [str(word) for word in words], check=True, capture_output=True, text=True
    ).stdout


def _compiled(folder: Path, llvm: Path, text: str, parts: list[Path], target: list[str]) -> Path:
    """Assembly of a kernel that is linked with a library's bitcode."""
    (folder / "k.ll").write_text(text)
    linked, better, made = (folder / name for name in ("l.bc", "o.bc", "k.s"))
    _run(llvm / "llvm-link", POINTERS, "--only-needed", "--internalize", folder / "k.ll", *parts,
         "-o", linked)  # fmt: skip
    _run(llvm / "opt", POINTERS, "-O3", *target, linked, "-o", better)
    _run(llvm / "llc", POINTERS, "-O3", *target, better, "-o", made)
    return made


def amd(form: str, llvm: Path, ocml: Path, folder: Path) -> float:
    """Slots of an element on gfx90a."""
    text = source(
        form,
        {
            "TRIPLE": "amdgcn-amd-amdhsa",
            "FUNCTION": f"__ocml_{FORMS[form][0]}_f32",
            "INDEX": "llvm.amdgcn.workitem.id.x",
            "CALL": "amdgpu_kernel",
        },
    )
    parts = [ocml / "ocml.bc", *(ocml / f"oclc_{name}.bc" for name in OCLC)]
    target = ["-mtriple=amdgcn-amd-amdhsa", "-mcpu=gfx90a"]
    return cdna_slots(_compiled(folder, llvm, text, parts, target).read_text())


def nvidia(form: str, llvm: Path, tools: Path, folder: Path) -> float:
    """Slots of an element on sm_80."""
    text = source(
        form,
        {
            "TRIPLE": "nvptx64-nvidia-cuda",
            "FUNCTION": f"__nv_{FORMS[form][0]}f",
            "INDEX": "llvm.nvvm.read.ptx.sreg.tid.x",
            "CALL": "ptx_kernel",
        },
    )
    target = ["-mtriple=nvptx64-nvidia-cuda", "-mcpu=sm_80"]
    made = _compiled(folder, llvm, text, [tools / "lib/libdevice.10.bc"], target)
    code = folder / "k.cubin"
    _run(tools / "bin/ptxas", "-arch", "sm_80", "-O3", made, "-o", code)
    return sass_slots(_run(tools / "bin/nvdisasm", code))


def main() -> None:
    """Print the slots of each form on each part."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("llvm", "ocml", "nvidia"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    for form in FORMS:
        with tempfile.TemporaryDirectory() as folder:
            of_amd = amd(form, options.llvm, options.ocml, Path(folder))
            of_nvidia = nvidia(form, options.llvm, options.nvidia, Path(folder))
        print(f"{form}: gfx90a {of_amd:g}, sm_80 {of_nvidia:g} slots an element")


if __name__ == "__main__":
    main()
