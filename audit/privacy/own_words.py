"""The words that a trace may say because they are ours: those of our own sentences and of public tables.

What a trace says of a program in sentences (why a call has no case, notes) mixes our words with the program's names. A
list of ours would be out of date with the next sentence; so they are read from where the sentences stand.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from audit.pseudonyms import Pseudonyms

#: Packages whose sentences stand in traces.
_SPEAKING = ("tracer", "importers")
_WORD = re.compile(r"\w+")
#: A word, or what is neither a word nor punctuation of ASCII: control characters, signs of other scripts.
_WORD_OR_FOREIGN = re.compile(r"(\w+)|[^\w\x20-\x7e]+")


@cache
def own_words() -> frozenset[str]:
    """Words in the string constants of what makes traces and in the knowledge base; none where they are not there."""
    package = Path(__file__).resolve().parents[1]
    words: set[str] = set()
    for file in sorted(file for folder in _SPEAKING for file in (package / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.update(_WORD.findall(node.value))
    for file in sorted((package / "knowledge").glob("*.csv")):
        words.update(_WORD.findall(file.read_text(encoding="utf-8")))
    return frozenset(words)


def masked(text: str, pseudonyms: Pseudonyms) -> str:
    """``text`` with every word that is not ours as a pseudonym: ``argument of type word-3``."""
    ours = own_words()

    def shown(match: re.Match[str]) -> str:
        if match[1] is None:
            return " "
        return match[1] if match[1] in ours else pseudonyms.of("word", match[1])

    return _WORD_OR_FOREIGN.sub(shown, text)
