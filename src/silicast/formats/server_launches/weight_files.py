"""Names of files of weights: a model's name, and the mix of formats that it ends with."""

from __future__ import annotations

import re

_PARTS = re.compile(r"-\d{5}-of-\d{5}$")
_END = re.compile(r"(.+?)[-.:](?:UD-)?((?:I?Q|TQ)\d_\w+|B?F16|FP16|F32|MXFP4\w*)$", re.IGNORECASE)
"""What stands before a mix's name, which may be called dynamic (UD), and the name."""
_KIND = re.compile(r"[-_.](?:GGUF|gguf|ggml)$")


def model_and_mix(name: str) -> tuple[str, str]:
    """The model of a file, or of a repository with the mix behind a colon, and the mix; "" = its
    name states none.

    >>> model_and_mix("/models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf")
    ('Meta-Llama-3.1-8B-Instruct', 'Q4_K_M')
    >>> model_and_mix("gpt-oss-120b-F16-00001-of-00002.gguf")
    ('gpt-oss-120b', 'F16')
    >>> model_and_mix("bartowski/Qwen3-8B-GGUF:q8_0"), model_and_mix("unsloth/Qwen3-8B-GGUF")
    (('bartowski/Qwen3-8B', 'Q8_0'), ('unsloth/Qwen3-8B', ''))
    """
    is_file = name.casefold().endswith(".gguf")
    stem = name.replace("\\", "/").rpartition("/")[2][: -len(".gguf")] if is_file else name
    match = _END.fullmatch(_PARTS.sub("", stem))
    if match is None:
        return _KIND.sub("", _PARTS.sub("", stem)), ""
    return _KIND.sub("", match[1]), match[2].upper()
