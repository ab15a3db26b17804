"""Chakra execution traces: what each rank of a program runs, with its messages and collectives."""

from silicast.formats.chakra.check import Defect, defects_of
from silicast.formats.chakra.files import ChakraTrace, read_chakra, write_chakra
from silicast.formats.chakra.schema import Attribute, ChakraNode, RankTrace

__all__ = [
    "Attribute",
    "ChakraNode",
    "ChakraTrace",
    "Defect",
    "RankTrace",
    "defects_of",
    "read_chakra",
    "write_chakra",
]
