"""Permission rules: whether a tool may run in a session. Pure functions that return a reason, used by
`gateway.toolcalls`.

Unset, unknown or failing input is a refusal. The order is fixed: availability, arguments, refusals by the owner's
settings (`refused`), the limits of the preset, the rules of every layer (`layers`) with locked denies first, scopes
allowed in this session, the default of the risk. Exposure will be the last stage; today it changes nothing.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from gateway.domain.approvers import ApproverRules
from gateway.domain.decisions import Allow, Ask, Decision, Deny, DenyReason
from gateway.domain.grants import Grant
from gateway.domain.presets import Preset
from gateway.domain.rules import Layer, Rule, Verdict
from gateway.domain.secret_paths import is_secret_path
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.tools import (
    NAMED_AT_MOST,
    ApprovalMode,
    Availability,
    CallScope,
    Risk,
    SubjectKind,
    ToolPolicy,
    ToolSpec,
)
from gateway.policy.layers import NO_PRESET, beyond, rules_above, rules_of_call, withheld_by
from gateway.policy.rules import (
    denied_outright,
    evaluate,
    files_taken,
    only_reads,
    place_of,
    some_part_reads,
    written_outside,
)

DEFAULT_APPROVAL: Mapping[Risk, ApprovalMode] = MappingProxyType(
    {
        Risk.NONE: ApprovalMode.ALLOW,
        Risk.READ: ApprovalMode.ALLOW,
        Risk.WRITE: ApprovalMode.ASK,
        Risk.EXECUTE: ApprovalMode.ASK,
        Risk.NETWORK: ApprovalMode.ASK,
    }
)

FILES_NAMED = 3
"""Patterns of files that a question names, at most."""

Note = Callable[[str], None]
"""Receiver of one line about each step of a decision, in order. `explain` prints them."""


def unnoted(_: str) -> None:
    """Note nothing: where nobody asks how a decision came about."""


def withheld(spec: ToolSpec, policy: ToolPolicy, session: Session, preset: Preset = NO_PRESET) -> Deny | None:
    """Return the reason why a tool is not offered, not listed and not run in this session; None when it is.

    Shared by the filter of tools offered to a model and by the decision on a call. `preset`: the one in force.
    """
    refused = available(spec.name, policy.availability, session) or withheld_by(preset, spec, session)
    if refused is not None:
        return refused
    if default_approval(spec, policy, session) is ApprovalMode.DENY:
        return Deny(reason=DenyReason.CONFIGURED, hint=f"The configuration denies {spec.name} here.")
    for rules in (rules_of_call(spec, policy, session, preset), *rules_above(spec, policy, preset)):
        if rules and (rule := denied_outright(rules, session.root_kind)) is not None:
            return _denied_by(rule, spec)
    return None


def available(tool: str, availability: Availability, session: Session) -> Deny | None:
    """Return the reason why a tool does not exist in this session; None when it does.

    Kinds apply to roots. For a child, its root's kind is checked against the present configuration, then the child's
    own tools.
    """
    refused = _refused_at_root(tool, availability, session.root_kind)
    if refused is None and session.tools is not None and tool not in session.tools:
        return Deny(reason=DenyReason.NOT_GRANTED, hint=f"This sub-session was not given {tool}.")
    return refused


def _refused_at_root(tool: str, availability: Availability, kind: SessionKind) -> Deny | None:
    match availability:
        case Availability.BLOCKED:
            return Deny(reason=DenyReason.BLOCKED, hint=f"The owner has blocked {tool}.")
        case Availability.ALWAYS:
            return None
        case Availability.MAIN if kind is SessionKind.MAIN:
            return None
        case Availability.NON_MAIN if kind is not SessionKind.MAIN:
            return None
        case Availability.MAIN:
            where = "Direct chats of others are" if kind is SessionKind.DM else "This conversation is"
            return Deny(
                reason=DenyReason.ONLY_IN_MAIN,
                hint=f"{tool} runs only where an owner speaks directly. {where} not main.",
            )
        case Availability.NON_MAIN:
            return Deny(reason=DenyReason.NOT_IN_MAIN, hint=f"{tool} is configured for every session but main ones.")
        case _:  # closed by default: any other value denies
            return Deny(reason=DenyReason.POLICY_ERROR, hint=f"The permission of {tool} is not valid; correct it.")


def refused(call_scope: CallScope) -> Deny | None:
    """Return the reason why the owner's settings never permit this call scope, or why it is not valid; else None.

    Checked before any other decision.
    """
    if call_scope.refused:
        return Deny(reason=DenyReason.CONFIGURED, hint=call_scope.refused)
    wrong = next((one for one in call_scope.subjects if not _is_subject(one)), None)
    if wrong is None:
        secret = secret_in(call_scope)
        if secret is None:
            return None
        hint = f"{secret[:NAMED_AT_MOST]!r} holds secrets: no tool may read, change or send it."
        return Deny(reason=DenyReason.CONFIGURED, hint=hint)
    if wrong.startswith(f"{SubjectKind.PATH}:"):
        path = wrong.partition(":")[2][:NAMED_AT_MOST]
        hint = f"{path!r} is outside the workspace, or names nothing in it. Name a file beneath it."
        return Deny(reason=DenyReason.INVALID_ARGUMENTS, hint=hint)
    return Deny(reason=DenyReason.POLICY_ERROR, hint=f"The tool states an invalid subject: {wrong[:NAMED_AT_MOST]!r}.")


def placed(call_scope: CallScope, workspace: str) -> CallScope:
    """Return the scope with its paths in the one form that rules know: relative to the workspace, without `.` and `//`.

    A path that leads elsewhere stays absolute, or begins with `..`, and is `refused`.
    """
    subjects = tuple(_placed(one, workspace) for one in call_scope.subjects)
    return replace(call_scope, subjects=subjects, workspace=workspace)


def _placed(subject: str, workspace: str) -> str:
    kind, _, path = subject.partition(":")
    if kind != SubjectKind.PATH or not path:
        return subject
    whole = posixpath.normpath(path)
    if workspace and whole.startswith(f"{workspace}/"):
        whole = whole[len(workspace) + 1 :]
    return f"{SubjectKind.PATH}:{whole}"


def secret_in(call_scope: CallScope) -> str | None:
    """Return the first path of a call that names a secret; None when none does."""
    paths = (path for kind, _, path in (one.partition(":") for one in call_scope.subjects) if kind == SubjectKind.PATH)
    return next((path for path in paths if is_secret_path(path)), None)


def _is_subject(subject: str) -> bool:
    """Return whether rules can be applied to a subject: a path inside the workspace, a host without look-alikes."""
    kind, _, text = subject.partition(":")
    match kind:
        case SubjectKind.PATH:
            return bool(text) and not text.startswith("/") and ".." not in text.split("/")
        case SubjectKind.HOST:
            return bool(text) and text.isascii() and text == text.lower()
        case SubjectKind.COMMAND | SubjectKind.CHAT:
            return bool(text)
        case _:
            return False


def decide(
    spec: ToolSpec,
    policy: ToolPolicy,
    session: Session,
    call_scope: CallScope,
    *,
    askable: bool,
    preset: Preset = NO_PRESET,
    granted: Sequence[Rule] = (),
    grant: Grant | None = None,
    contained: bool = True,
    note: Note = unnoted,
) -> Decision:
    """Decide whether a valid call may run now, must be asked about, or is refused. A `withheld` tool is always refused.

    `call_scope`: that of this call, which is not `refused`. `askable`: an approver of this session can be reached.
    `preset`: the one in force. `granted`: rules of the layer of grants. `grant`: one that holds here and covers this
    call (`gateway.policy.grants`); it lifts an `Ask`, never a `Deny`. `contained`: its programs run in a
    sandbox, where alone a command that only reads runs unasked. `note` is given each step that was reached.
    """
    deny = withheld(spec, policy, session, preset) or beyond(preset, spec, call_scope)
    if deny is not None:
        note(f"preset: {preset.name}, refused")
        return deny
    note(f"preset: {preset.name}")
    rules = rules_of_call(spec, policy, session, preset, granted)
    closed = _closed_chat(rules, spec, session, call_scope, note)
    found = closed or _by_rules(rules, spec, policy, session, call_scope, note, contained=contained)
    found = _under_parents(found, spec, policy, session, preset, call_scope)
    found = _granted(found, grant, policy.deciding, note)
    if spec.leaves_plan and isinstance(found, Allow):
        found = Ask(because="a person decides about every plan", rule=found.rule)
    return _after_exposure(_answerable(found, spec, note, askable=askable))


def _by_rules(
    rules: Sequence[Rule],
    spec: ToolSpec,
    policy: ToolPolicy,
    session: Session,
    call_scope: CallScope,
    note: Note,
    *,
    contained: bool,
) -> Decision:
    """Return the rules' decision, else the default of the risk."""
    risk = call_scope.risk
    kind, place = session.root_kind.value, place_of(call_scope)
    rule = evaluate(rules, call_scope.subjects, kind, place)
    if note is not unnoted:
        note(f"layers: {_layers_text(rules)}")
        note(f"rules: {_rule_text(rule, len(rules))}")
    if rule is not None and rule.decision is Verdict.DENY:
        return _denied_by(rule, spec)
    if outside := written_outside(rules, call_scope.subjects, kind, place):
        note(f"workspace: {outside} is outside of it")
        return _writes_outside(outside)
    if rule is not None and rule.decision is Verdict.ALLOW:
        masked = some_part_reads(call_scope, rule)
        return Allow(because=f"{rule.where} allows {rule.pattern!r}", rule=rule, masked=masked)
    approval = ApprovalMode.ASK if rule is not None else default_approval(spec, policy, session, risk)
    if rule is None:
        note(f"default for {risk.value} in {session.root_kind.value}: {approval}")
    match approval:
        case ApprovalMode.ASK if rule is None and _is_harmless(spec, risk):
            note(f"relaxed: {risk} is allowed here")
            return Allow(because=f"{risk} is allowed here")
        case ApprovalMode.ASK if rule is None and contained and _reads_in_main(session, call_scope):
            note("read only: every part of the command only reads")
            return Allow(because="every part of the command only reads", no_network=True)
        case ApprovalMode.ALLOW:
            return Allow(because=f"{risk} is allowed here")
        case ApprovalMode.ASK:
            return _asked(f"{risk} needs an approval", rule, rules, call_scope, kind)
        case _:  # closed by default: any other value denies
            return Deny(reason=DenyReason.POLICY_ERROR, hint=f"The approval of {spec.name} is not valid; correct it.")


def _asked(because: str, rule: Rule | None, rules: Sequence[Rule], call_scope: CallScope, kind: str) -> Ask:
    """Return the question about a call. It names files that may be taken along: no word of the call does."""
    program, files = ("", ()) if rule is None else files_taken(rules, call_scope, kind)
    if not files:
        return Ask(because=because, rule=rule)
    named = ", ".join([*(repr(one) for one in files[:FILES_NAMED]), *(["…"] if len(files) > FILES_NAMED else [])])
    text = f"may take along or show files that fit {named}"
    return Ask(because=f"{program} {text}", warning=f"{program.capitalize()} {text}.", rule=rule)


def _closed_chat(
    rules: Sequence[Rule], spec: ToolSpec, session: Session, call_scope: CallScope, note: Note
) -> Deny | None:
    """Return the refusal of a call to another conversation than the one at hand, unless a rule is about it."""
    begin = f"{SubjectKind.CHAT}:"
    for chat in (one for one in call_scope.subjects if one.startswith(begin)):
        if evaluate(rules, (chat,), session.root_kind.value) is None:
            note("chats: refused, no rule names it")
            name = chat[len(begin) :][:NAMED_AT_MOST]
            hint = (
                f"{spec.name} writes only to the conversation at hand, and no rule opens {name!r}. Leave the chat out, "
                f'or let the owner add [[rules]] tool = "{spec.name}", pattern = "{name}", decision = "ask".'
            )
            return Deny(reason=DenyReason.CONFIGURED, hint=hint)
    return None


def _under_parents(
    found: Decision, spec: ToolSpec, policy: ToolPolicy, session: Session, preset: Preset, call_scope: CallScope
) -> Decision:
    """Return the decision of a sub-session as strict as the presets of the sessions above it."""
    for rules in rules_above(spec, policy, preset):
        rule = evaluate(rules, call_scope.subjects, session.root_kind.value, place_of(call_scope))
        if rule is not None and rule.decision is Verdict.DENY:
            return _denied_by(rule, spec)
        if rule is not None and rule.decision is Verdict.ASK and isinstance(found, Allow):
            because = f"{rule.where} asks about {rule.pattern!r}"
            found = _asked(because, rule, rules, call_scope, session.root_kind.value)
    return found


def hides(spec: ToolSpec, policy: ToolPolicy, session: Session, preset: Preset) -> Callable[[str], bool]:
    """Return a predicate: a deny hides a path from a tool that searches folders."""
    kind = session.root_kind.value

    def is_hidden(path: str) -> bool:
        lists = (rules_of_call(spec, policy, session, preset), *rules_above(spec, policy, preset))
        found = (evaluate(rules, (f"{SubjectKind.PATH}:{path}",), kind) for rules in lists if rules)
        return any(rule is not None and rule.decision is Verdict.DENY for rule in found)

    return is_hidden


def reachable(
    spec: ToolSpec, policy: ToolPolicy, session: Session, preset: Preset = NO_PRESET
) -> Callable[[str], Verdict]:
    """Return a function that decides about a scope that nobody allowed yet, such as the host of a link.

    It decides as about a call of this scope with the tool's own risk: a page may lead where it could be opened.
    """

    def decided(scope: str) -> Verdict:
        hosts = spec.subjects is None or SubjectKind.HOST in spec.subjects
        subjects = (f"{SubjectKind.HOST}:{scope}",) if hosts else ()
        call_scope = CallScope(risk=spec.risk, scope=scope, subjects=subjects)
        match decide(spec, policy, session, call_scope, askable=True, preset=preset):
            case Allow():
                return Verdict.ALLOW
            case Ask():
                return Verdict.ASK
            case Deny():
                return Verdict.DENY

    return decided


def _granted(found: Decision, grant: Grant | None, deciding: ApproverRules, note: Note) -> Decision:
    """Return the decision as a grant lifts it: an `Ask` becomes an `Allow`, everything else stays.

    A grant from one person covers no quorum, and no rule that wants another person than the requester.
    """
    if grant is None or not isinstance(found, Ask):
        return found
    if not grant.satisfies(deciding):
        note(f"grants: {grant.id} was not given by all who must allow this")
        return found
    note(f"grants: {grant.id} allows it")
    return Allow(because=f"grant {grant.id} allows it", grant=grant.id)


def _answerable(found: Decision, spec: ToolSpec, note: Note, *, askable: bool) -> Decision:
    """Return the decision, or a refusal where nobody can be asked."""
    if askable or not isinstance(found, Ask):
        return found
    note("approvers: nobody can be asked")
    who = "nobody can be asked: let an owner open the page or a direct chat."
    return Deny(reason=DenyReason.NOBODY_TO_ASK, hint=f"{spec.name} needs an approval and {who}", rule=found.rule)


def _after_exposure(found: Decision) -> Decision:
    """Return the decision as what the session has read tightens it: the last stage, which changes nothing yet."""
    return found


def default_approval(spec: ToolSpec, policy: ToolPolicy, session: Session, risk: Risk | None = None) -> ApprovalMode:
    """Return the approval before any rule, for the root's kind: the configuration's, else the tool's, else its risk's.

    `risk`: that of the call; None: the tool's own. A configured "allow" covers only the tool's own risk; a call with
    another risk gets that risk's default.
    """
    kind, risk = session.root_kind, risk or spec.risk
    found = policy.approval.get(kind, spec.approval.get(kind, DEFAULT_APPROVAL[risk]))
    if found is ApprovalMode.ALLOW and risk is not spec.risk:
        return DEFAULT_APPROVAL[risk]
    return found


def _reads_in_main(session: Session, call_scope: CallScope) -> bool:
    """Return whether a call is a command that only reads, in a main session. A sub-session is none."""
    return session.kind is SessionKind.MAIN and only_reads(call_scope)


def _is_harmless(spec: ToolSpec, risk: Risk) -> bool:
    """Return whether a call is more harmless than its tool, so that it need not be asked about."""
    return risk is not spec.risk and DEFAULT_APPROVAL[risk] is ApprovalMode.ALLOW


def _denied_by(rule: Rule, spec: ToolSpec) -> Deny:
    hint = f"A rule of the owner denies this: {rule.where}, {spec.name} with {rule.pattern!r}."
    return Deny(reason=DenyReason.CONFIGURED, hint=hint, rule=rule)


def _writes_outside(path: str) -> Deny:
    hint = f"{path[:NAMED_AT_MOST]!r} is outside the workspace. Write beneath it, or let the owner make a rule for it."
    return Deny(reason=DenyReason.INVALID_ARGUMENTS, hint=hint)


def _layers_text(rules: Sequence[Rule]) -> str:
    """Return how many rules each layer has, in their order, locked denies first."""
    locked = sum(rule.locked for rule in rules)
    counts = Counter(rule.layer for rule in rules if not rule.locked)
    found = [f"{locked} locked"] if locked else []
    return ", ".join([*found, *(f"{counts[layer]} of {layer.value}" for layer in Layer if counts[layer])]) or "no rules"


def _rule_text(rule: Rule | None, count: int) -> str:
    if rule is None:
        return f"none of {count} matches every subject"
    return f"{rule.where}: {rule.decision.value} {rule.tool} {rule.pattern!r}{' (locked)' if rule.locked else ''}"


def describe_availability(availability: Availability) -> str:
    """Return in words where a tool exists."""
    return {
        Availability.ALWAYS: "everywhere",
        Availability.MAIN: "main sessions only",
        Availability.NON_MAIN: "everywhere but main sessions",
        Availability.BLOCKED: "blocked",
    }[availability]
