"""Reader of shell scripts: text to parts, with the grammar of tree-sitter. The only importer of that library.

The grammar is imported on the first script that is read, so that a start does not pay for it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from gateway.policy.shell.characters import why_unclear
from gateway.policy.shell.lexing import Unquoted, unquoted, word_spans
from gateway.policy.shell.loose import loose_readings
from gateway.policy.shell.places import NOTHING
from gateway.policy.shell.script import NONE, PartKind, Script, ScriptPart
from gateway.policy.shell.unwrapping import base_name, unwrap

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

BYTES_AT_MOST = 65_536
"""Most bytes of a script that is read."""
DEPTH_AT_MOST = 100
"""Most nodes of the grammar inside each other."""
PARTS_AT_MOST = 500
"""Most parts of a script."""
WORDS_AT_MOST = 1_000
"""Most words of a command."""
SIGNS = "()[]{}$`@?!*+|;&<>\n"
SIGNS_TIMES_BYTES = 4_000_000
"""Most signs of a script, times its bytes. The parser may look ahead to the end at each sign: about 0.1 s at this
limit, 22 s for 64 KiB of unfinished pipes.
"""
KEPT_BELOW = 4_096
"""Characters of a script whose parts are kept for the next question."""
NESTED_AT_MOST = 5
"""Scripts inside scripts that are read: `bash -c "bash -c …"`."""
FOLDERS_AT_MOST = 8
"""Folders in which a relative path may stand, before they are not known any more."""

TOO_MUCH = "It has too many parts or levels to be read."
_WORDS = frozenset({
    "word", "string", "raw_string", "ansi_c_string", "translated_string", "concatenation", "number",
    "simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion",
    "brace_expression", "regex", "extglob_pattern", "test_operator", "variable_name", "special_variable_name",
    "subscript", "array",
})  # fmt: skip
_OPERATORS = frozenset({
    ";", ";;", ";&", ";;&", "&", "&&", "||", "|", "|&", "(", ")", "((", "))", "\n", "<", ">", ">>", "&>", "&>>", ">|",
    "<&", ">&", "<>", "<<<", "<&-", ">&-", "$(", "`", "<(", ">(", '"', "$", "${", "",
})  # fmt: skip
_APART = frozenset({"subshell", "command_substitution", "process_substitution"})
"""Nodes whose change of folder ends with them."""


@cache
def _parser() -> Parser:
    """Return the parser of bash, imported and made on first use."""
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def parse(text: str) -> Script:
    """Return the parts of a script. Never raises: what cannot be read has a reason to ask."""
    return _parsed(text) if len(text) < KEPT_BELOW else _parsed_large(text)


@lru_cache(maxsize=64)
def _parsed(text: str) -> Script:
    return _parse(text, 0)


@lru_cache(maxsize=1)
def _parsed_large(text: str) -> Script:
    return _parse(text, 0)


def _parse(text: str, nested: int) -> Script:
    data = text.encode(errors="surrogatepass")
    if len(data) > BYTES_AT_MOST:
        return Script(text=text, why_ask=f"It is longer than {BYTES_AT_MOST} bytes, too long to be read.", loose=None)
    if sum(map(text.count, SIGNS)) * len(data) > SIGNS_TIMES_BYTES:
        return Script(text=text, why_ask=TOO_MUCH, loose=loose_readings(text))
    root = _parser().parse(data).root_node
    reader = _Reader(text, data, nested)
    reader.visit(root, 0)
    spans = word_spans(data)
    agreed = spans is not None and spans == sorted(reader.spans)
    sure = not root.has_error and not reader.cut and (agreed or spans is None)
    return Script(
        text=text,
        parts=tuple(reader.parts),
        why_ask=_why(reader, text, error=root.has_error, agreed=agreed or spans is None),
        plain=agreed and sure,
        loose=() if sure else loose_readings(text),
    )


def _why(reader: _Reader, text: str, *, error: bool, agreed: bool) -> str:
    """Return the first reason why a script cannot be known."""
    reasons = (
        why_unclear(text),
        "It is not a script that can be read without doubt." if error else "",
        *(part.why_ask for part in reader.parts),
        TOO_MUCH if reader.cut else "",
        "" if agreed else "It can be read in two ways.",
        "" if reader.parts else "It contains no command that can be read.",
    )
    return next(filter(None, reasons), "")


class _Reader:
    """Walk over the nodes of one script."""

    def __init__(self, text: str, data: bytes, nested: int) -> None:
        self.parts: list[ScriptPart] = []
        self.spans: list[tuple[int, int]] = []
        self.cut = False
        self._text = text if len(text) == len(data) else None
        self._data = data
        self._nested = nested
        self._folders: tuple[str, ...] | None = ("",)

    def written(self, node: Node) -> str:
        """Return a node's text."""
        if self._text is not None:
            return self._text[node.start_byte : node.end_byte]
        return self._data[node.start_byte : node.end_byte].decode(errors="surrogatepass")

    def visit(self, node: Node, depth: int) -> None:
        """Read a node and all below it."""
        if depth > DEPTH_AT_MOST or len(self.parts) > PARTS_AT_MOST:
            self.cut = True
            return
        kind = node.type
        read = _READ.get(kind)
        if read is not None:
            read(self, node, depth + 1)
        elif kind in _WORDS:
            self._word(node, depth)
        elif node.is_named:
            before = self._folders
            for child in node.children:  # not by `_below`: each level takes a frame of Python's stack
                self.visit(child, depth + 1)
            if kind in _APART:
                self._folders = before
        elif kind not in _OPERATORS:
            self.spans.append((node.start_byte, node.end_byte))

    def _below(self, node: Node, depth: int) -> None:
        for child in node.children:
            self.visit(child, depth + 1)

    def _apart(self, node: Node, depth: int) -> None:
        before = self._folders
        self._below(node, depth)
        self._folders = before

    # --- words --------------------------------------------------------------------------------

    def _word(self, node: Node, depth: int) -> None:
        """Note a word, and read the commands inside it."""
        self.spans.append((node.start_byte, node.end_byte))
        self._inside(node, depth)

    def _inside(self, node: Node, depth: int) -> None:
        """Read the commands inside a word, without noting its own pieces as words."""
        if not node.child_count:
            return
        spans, self.spans = self.spans, []
        self._apart(node, depth)
        self.spans = spans

    # --- commands -----------------------------------------------------------------------------

    def command(self, node: Node, depth: int) -> None:
        """Read a simple command, or a declaration."""
        written: list[str] = []
        redirects: list[Node] = []
        for child in node.children:
            kind = child.type
            if kind == "variable_assignment" and not written:
                self.assignment(child, depth, exported=True)
            elif kind in ("file_redirect", "herestring_redirect"):
                redirects.append(child)
            elif kind in ("command_name", "variable_assignment") or kind in _WORDS or not child.is_named:
                if kind == "$":  # of a translated string
                    self.cut = True
                written.append(self.written(child))
                self.spans.append((child.start_byte, child.end_byte))
                self._inside(child, depth)
            else:
                self.cut = True  # the grammar has something here that is not known
                self.visit(child, depth)
        if written:
            self._add_command(self.written(node), written)
        for redirect in redirects:
            self.visit(redirect, depth)

    def _add_command(self, text: str, written: Sequence[str]) -> None:
        if len(written) > WORDS_AT_MOST:
            self.cut = True
        read = [unquoted(word) for word in written[:WORDS_AT_MOST]]
        expands = {at for at, word in enumerate(read) if word.expands}
        globs = {at for at, word in enumerate(read) if word.globs}
        dynamic = frozenset(expands | globs)
        words = [word.text or "''" for word in read]  # an empty one would show in no form
        found = unwrap(words, dynamic)
        start = found.start
        inner = words[start:]
        program = inner[0]
        name = base_name(program)
        spaced = " ".join(text.split())
        forms = dict.fromkeys([*found.forms, spaced, text])
        self.parts.append(
            ScriptPart(
                kind=PartKind.COMMAND,
                text=text,
                words=(name, *inner[1:]),
                forms=tuple(forms),
                suspects=tuple(found.suspects),
                expands=frozenset(at - start for at in expands if at >= start),
                globs=frozenset(at - start for at in globs if at >= start),
                folders=self._folders,
                program=program,
                wrapped=start > 0,
                why_ask=found.why_ask or ("" if program.isascii() else "The name of its program is not plain text."),
            )
        )
        self.cut = self.cut or found.too_long
        for script in found.scripts:
            self._nested_script(script)
        if name in ("cd", "pushd", "popd"):
            self._change_folder(inner, bool(dynamic))

    def _nested_script(self, script: str) -> None:
        if self._nested >= NESTED_AT_MOST:
            self.cut = True
            return
        inner = _parse(script, self._nested + 1)
        self.parts.extend(inner.parts)
        if inner.loose != ():
            self.cut = True

    def _change_folder(self, words: Sequence[str], unknown: bool) -> None:
        """Note the folders after `cd`, which may have failed: the old ones and the new ones."""
        if self._folders is None:
            return
        if unknown or len(words) != 2 or words[0] != "cd" or words[1].startswith("-"):
            self._folders = None
            return
        new = [posixpath.join(one, words[1]) for one in self._folders]
        both = tuple(dict.fromkeys([*self._folders, *new]))
        self._folders = both if len(both) <= FOLDERS_AT_MOST else None

    def test(self, node: Node, depth: int) -> None:
        """Read `[ … ]`, `[[ … ]]` or `(( … ))` as a command."""
        before = len(self.spans)
        self._below(node, depth)
        words = [self._data[start:end].decode(errors="surrogatepass") for start, end in sorted(self.spans[before:])]
        self._add_command(self.written(node), words or ["["])  # none, where it stands too deep to be read

    def arithmetic(self, node: Node, depth: int) -> None:
        """Read a compound statement: `{ … }`, or arithmetic."""
        if node.children and node.children[0].type != "((":
            self._below(node, depth)
            return
        self._below(node, depth)
        self._calculates(node)

    def counted(self, node: Node, depth: int) -> None:
        """Read a loop that counts."""
        self._below(node, depth)
        self._calculates(node)

    def _calculates(self, node: Node) -> None:
        text = self.written(node)
        why = "It calculates with values that are known only when it runs."
        self.parts.append(ScriptPart(kind=PartKind.COMMAND, text=text, words=("((",), forms=(text,), why_ask=why))

    # --- the rest -----------------------------------------------------------------------------

    def assignment(self, node: Node, depth: int, *, exported: bool = False) -> None:
        """Read `NAME=value`."""
        text = self.written(node)
        self.spans.append((node.start_byte, node.end_byte))
        self._inside(node, depth)
        name, _, value = text.partition("=")
        word = unquoted(value)
        self.parts.append(
            ScriptPart(
                kind=PartKind.ASSIGNMENT,
                text=text,
                words=(name, word.text),
                forms=(text,),
                expands=frozenset({1}) if word.expands else NONE,
                folders=self._folders,
                exported=exported,
            )
        )

    def loop(self, node: Node, depth: int) -> None:
        """Read `for NAME in …`."""
        name = next((child for child in node.children if child.type == "variable_name"), None)
        if name is not None:
            text = self.written(name)
            self.parts.append(ScriptPart(kind=PartKind.ASSIGNMENT, text=text, words=(text, ""), forms=(text,)))
        self._below(node, depth)

    def function(self, node: Node, depth: int) -> None:
        """Read the definition of a function. Its commands run when it is called, in any folder."""
        text = self.written(node)
        self.parts.append(ScriptPart(kind=PartKind.FUNCTION, text=text, forms=(text,)))
        before, self._folders = self._folders, None
        self._below(node, depth)
        self._folders = before

    def redirect(self, node: Node, depth: int) -> None:
        """Read a redirect to or from a file. Copies of open files, and what is thrown away, are no parts."""
        sign = ""
        targets: list[Node] = []
        for child in node.children:
            if child.type == "file_descriptor":
                continue
            if child.type in _WORDS:
                targets.append(child)
                self._word(child, depth)
            elif not child.is_named:
                sign = child.type
            else:
                self.cut = True
                self.visit(child, depth)
        if len(targets) > 1:  # there is none where a file is closed
            self.cut = True
        for target in targets:
            self._add_redirect(self.written(node), sign, unquoted(self.written(target)))

    def _add_redirect(self, text: str, sign: str, target: Unquoted) -> None:
        unknown = target.expands or target.globs
        if sign in ("<&", ">&") and not unknown and (target.text.rstrip("-").isdigit() or target.text == "-"):
            return
        if target.text in NOTHING and not unknown:
            return
        kind = PartKind.READ if sign in ("<", "<&") else PartKind.WRITE
        self.parts.append(
            ScriptPart(
                kind=kind,
                text=text,
                words=(target.text,),
                forms=tuple(dict.fromkeys([f"{'<' if kind is PartKind.READ else '>'} {target.text}", text])),
                folders=self._folders,
                why_ask="The file of a redirect is known only when it runs." if unknown else "",
            )
        )

    def text_input(self, node: Node, depth: int) -> None:
        """Read a here-document or here-string: data of a command, and commands inside it."""
        data = [child for child in node.children if child.type in _WORDS]
        self._below(node, depth)
        if node.type == "herestring_redirect" and any(unquoted(self.written(child)).expands for child in data):
            why = "It contains text that is known only when it runs."
            text = self.written(node)
            self.parts.append(ScriptPart(kind=PartKind.READ, text=text, words=("",), forms=(text,), why_ask=why))

    def nothing(self, node: Node, depth: int) -> None:
        """Skip a comment."""

    def error(self, node: Node, depth: int) -> None:
        """Read what stands in a piece that the grammar does not know."""
        self.cut = True
        self._below(node, depth)


_READ = {
    "command": _Reader.command,
    "declaration_command": _Reader.command,
    "unset_command": _Reader.command,
    "test_command": _Reader.test,
    "compound_statement": _Reader.arithmetic,
    "c_style_for_statement": _Reader.counted,
    "for_statement": _Reader.loop,
    "variable_assignment": _Reader.assignment,
    "function_definition": _Reader.function,
    "file_redirect": _Reader.redirect,
    "herestring_redirect": _Reader.text_input,
    "heredoc_redirect": _Reader.text_input,
    "comment": _Reader.nothing,
    "heredoc_content": _Reader.nothing,
    "string_content": _Reader.nothing,
    "ERROR": _Reader.error,
}
