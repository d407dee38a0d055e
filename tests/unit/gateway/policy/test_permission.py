from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

import pytest

from gateway.domain.decisions import Allow, Ask, Decision, Deny, DenyReason
from gateway.domain.grants import Grant
from gateway.domain.ids import GrantId, SessionId
from gateway.domain.rules import Rule, Verdict
from gateway.domain.sessions import Origin, Session, SessionKind
from gateway.domain.tools import ApprovalMode, Availability, CallScope, Effect, Risk, ToolPolicy, ToolSpec
from gateway.policy.grants import covering
from gateway.policy.permission import available, decide, default_approval, describe_availability, refused, withheld
from tests.support.makers import EPOCH, scope_grant

SPEC = ToolSpec(
    name="shell", description="Runs.", risk=Risk.EXECUTE, effect=Effect.UNSAFE, availability=Availability.ALWAYS
)
POLICY = ToolPolicy(availability=Availability.ALWAYS, approval={}, timeout_s=30, actions={}, sandbox=None)
YES = None


def decided(spec: ToolSpec, policy: ToolPolicy, where: Session, *, askable: bool = True) -> Decision:
    """Decide a call that touches nothing but what its tool's risk says."""
    return decide(spec, policy, where, CallScope(risk=spec.risk), askable=askable)


def session(
    kind: SessionKind = SessionKind.MAIN, *, root: SessionKind | None = None, tools: tuple[str, ...] | None = None
) -> Session:
    return Session(
        id=SessionId("s"),
        kind=kind,
        origin=Origin.DIRECT,
        owner=None,
        title="",
        epoch=0,
        root_kind=root or kind,
        tools=tools,
        created_at=EPOCH,
        active_at=EPOCH,
    )


@pytest.mark.parametrize(
    ("availability", "kind", "tools", "reason"),
    [
        (Availability.ALWAYS, SessionKind.MAIN, None, YES),
        (Availability.ALWAYS, SessionKind.DM, None, YES),
        (Availability.ALWAYS, SessionKind.NON_MAIN, None, YES),
        (Availability.MAIN, SessionKind.MAIN, None, YES),
        (Availability.MAIN, SessionKind.DM, None, DenyReason.ONLY_IN_MAIN),
        (Availability.MAIN, SessionKind.NON_MAIN, None, DenyReason.ONLY_IN_MAIN),
        (Availability.NON_MAIN, SessionKind.MAIN, None, DenyReason.NOT_IN_MAIN),
        (Availability.NON_MAIN, SessionKind.DM, None, YES),
        (Availability.NON_MAIN, SessionKind.NON_MAIN, None, YES),
        (Availability.BLOCKED, SessionKind.MAIN, None, DenyReason.BLOCKED),
        (Availability.BLOCKED, SessionKind.DM, None, DenyReason.BLOCKED),
        (Availability.BLOCKED, SessionKind.NON_MAIN, None, DenyReason.BLOCKED),
    ],
)
def test_availability_by_kind(
    availability: Availability, kind: SessionKind, tools: tuple[str, ...] | None, reason: DenyReason | None
) -> None:
    found = available("shell", availability, session(kind, tools=tools))

    assert (found.reason if found else YES) is reason
    assert found is None or "shell" in found.hint


@pytest.mark.parametrize(
    ("availability", "root", "tools", "reason"),
    [
        (Availability.MAIN, SessionKind.MAIN, ("shell", "files"), YES),
        (Availability.MAIN, SessionKind.MAIN, ("files",), DenyReason.NOT_GRANTED),
        (Availability.ALWAYS, SessionKind.DM, ("shell",), YES),
        (Availability.ALWAYS, SessionKind.MAIN, (), DenyReason.NOT_GRANTED),
        (Availability.NON_MAIN, SessionKind.NON_MAIN, ("files",), DenyReason.NOT_GRANTED),
        (Availability.BLOCKED, SessionKind.MAIN, ("shell",), DenyReason.BLOCKED),
        # It was granted the tool before the configuration took that from its root.
        (Availability.MAIN, SessionKind.DM, ("shell",), DenyReason.ONLY_IN_MAIN),
        (Availability.MAIN, SessionKind.NON_MAIN, ("shell",), DenyReason.ONLY_IN_MAIN),
        (Availability.NON_MAIN, SessionKind.MAIN, ("shell",), DenyReason.NOT_IN_MAIN),
    ],
)
def test_child_tools_are_limited_by_grant_and_root(
    availability: Availability, root: SessionKind, tools: tuple[str, ...], reason: DenyReason | None
) -> None:
    found = available("shell", availability, session(SessionKind.NON_MAIN, root=root, tools=tools))

    assert (found.reason if found else YES) is reason


@pytest.mark.parametrize(
    ("availability", "kind", "tools", "hint"),
    [
        (
            Availability.MAIN,
            SessionKind.DM,
            None,
            "shell runs only where an owner speaks directly. Direct chats of others are not main.",
        ),
        (
            Availability.MAIN,
            SessionKind.NON_MAIN,
            None,
            "shell runs only where an owner speaks directly. This conversation is not main.",
        ),
        (Availability.NON_MAIN, SessionKind.MAIN, None, "shell is configured for every session but main ones."),
        (Availability.BLOCKED, SessionKind.MAIN, None, "The owner has blocked shell."),
        (Availability.ALWAYS, SessionKind.MAIN, ("files",), "This sub-session was not given shell."),
    ],
)
def test_unavailable_tool_has_a_reason(
    availability: Availability, kind: SessionKind, tools: tuple[str, ...] | None, hint: str
) -> None:
    found = available("shell", availability, session(kind, tools=tools))

    assert found is not None
    assert found.hint == hint


@pytest.mark.parametrize("availability", ["", "Main", "main-only", "unknown", None, 1])
@pytest.mark.parametrize("kind", list(SessionKind))
def test_invalid_permission_denies(availability: object, kind: SessionKind) -> None:
    """c5: closed by default. `main-only` is an alias in the configuration only; here it is invalid."""
    for tools in (None, ("shell",)):
        assert available("shell", cast(Availability, availability), session(kind, tools=tools)) == Deny(
            reason=DenyReason.POLICY_ERROR, hint="The permission of shell is not valid; correct it."
        )


@pytest.mark.parametrize("kind", ["", "owner", None])
def test_invalid_kind_is_not_main(kind: object) -> None:
    assert available("shell", Availability.MAIN, session(cast(SessionKind, kind))) is not None


@pytest.mark.parametrize(
    ("risk", "approval"),
    [
        (Risk.NONE, ApprovalMode.ALLOW),
        (Risk.READ, ApprovalMode.ALLOW),
        (Risk.WRITE, ApprovalMode.ASK),
        (Risk.EXECUTE, ApprovalMode.ASK),
        (Risk.NETWORK, ApprovalMode.ASK),
    ],
)
@pytest.mark.parametrize("kind", list(SessionKind))
def test_default_approval_follows_the_risk(risk: Risk, approval: ApprovalMode, kind: SessionKind) -> None:
    assert default_approval(replace(SPEC, risk=risk), POLICY, session(kind)) is approval


@pytest.mark.parametrize(
    ("approval", "askable", "kind", "verdict"),
    [
        ({"main": ApprovalMode.ALLOW}, True, SessionKind.MAIN, Allow),
        ({"main": ApprovalMode.ALLOW}, False, SessionKind.MAIN, Allow),
        ({"main": ApprovalMode.ALLOW}, True, SessionKind.DM, Ask),
        ({"main": ApprovalMode.DENY}, True, SessionKind.MAIN, DenyReason.CONFIGURED),
        ({"dm": ApprovalMode.DENY}, True, SessionKind.DM, DenyReason.CONFIGURED),
        ({"dm": ApprovalMode.DENY}, True, SessionKind.MAIN, Ask),
        ({"non-main": ApprovalMode.ASK}, False, SessionKind.NON_MAIN, DenyReason.NOBODY_TO_ASK),
        ({}, True, SessionKind.MAIN, Ask),
        ({}, False, SessionKind.MAIN, DenyReason.NOBODY_TO_ASK),
    ],
)
def test_configured_approval_overrides_the_risk(
    approval: Mapping[str, ApprovalMode], askable: bool, kind: SessionKind, verdict: type[Allow | Ask] | DenyReason
) -> None:
    found = decided(SPEC, replace(POLICY, approval=approval), session(kind), askable=askable)

    assert (found.reason if isinstance(found, Deny) else type(found)) is verdict


@pytest.mark.parametrize("kind", list(SessionKind))
@pytest.mark.parametrize("availability", list(Availability))
@pytest.mark.parametrize("approval", list(ApprovalMode))
def test_tool_is_offered_where_a_call_is_not_denied(
    approval: ApprovalMode, availability: Availability, kind: SessionKind
) -> None:
    policy = replace(POLICY, availability=availability, approval={kind.value: approval})
    deny = withheld(SPEC, policy, session(kind))
    for call_scope in (CallScope(risk=SPEC.risk), *(CallScope(risk=risk, scope=HERE) for risk in Risk)):
        found = decide(SPEC, policy, session(kind), call_scope, askable=True, grant=scoped((HERE,), call_scope))

        assert deny == (found if isinstance(found, Deny) else None)
    refused_where = available("shell", availability, session(kind)) is not None
    assert (deny is not None) is (refused_where or approval is ApprovalMode.DENY)


@pytest.mark.parametrize(
    ("configured", "kind", "root", "approval"),
    [
        ({}, SessionKind.MAIN, SessionKind.MAIN, ApprovalMode.ALLOW),
        ({}, SessionKind.DM, SessionKind.DM, ApprovalMode.ASK),
        ({}, SessionKind.NON_MAIN, SessionKind.NON_MAIN, ApprovalMode.DENY),
        # A child's root decides the kind; the owner's setting overrides the tool's.
        ({}, SessionKind.NON_MAIN, SessionKind.MAIN, ApprovalMode.ALLOW),
        ({"main": ApprovalMode.DENY}, SessionKind.NON_MAIN, SessionKind.MAIN, ApprovalMode.DENY),
        ({"main": ApprovalMode.DENY}, SessionKind.DM, SessionKind.DM, ApprovalMode.ASK),
    ],
)
def test_spec_approval_ranks_between_settings_and_risk(
    configured: Mapping[str, ApprovalMode], kind: SessionKind, root: SessionKind, approval: ApprovalMode
) -> None:
    own = {"main": ApprovalMode.ALLOW, "non-main": ApprovalMode.DENY}
    where = replace(session(kind), root_kind=root)

    assert default_approval(replace(SPEC, approval=own), replace(POLICY, approval=configured), where) is approval


def test_child_is_decided_like_its_root() -> None:
    child = replace(session(SessionKind.NON_MAIN, tools=("shell",)), root_kind=SessionKind.MAIN)
    policy = replace(POLICY, approval={"main": ApprovalMode.ALLOW, "non-main": ApprovalMode.DENY})

    assert isinstance(decided(SPEC, policy, child), Allow)


@pytest.mark.parametrize("word", ["", "yes", "ALLOW", None, True])
def test_invalid_approval_denies(word: object) -> None:
    policy = replace(POLICY, approval={"main": cast(ApprovalMode, word)})

    found = decided(SPEC, policy, session())

    assert found == Deny(reason=DenyReason.POLICY_ERROR, hint="The approval of shell is not valid; correct it.")


@pytest.mark.parametrize(
    ("approval", "askable", "verdict"),
    [
        (ApprovalMode.ALLOW, True, Allow(because="execute is allowed here")),
        (ApprovalMode.ASK, True, Ask(because="execute needs an approval")),
        (ApprovalMode.DENY, True, Deny(reason=DenyReason.CONFIGURED, hint="The configuration denies shell here.")),
        (
            ApprovalMode.ASK,
            False,
            Deny(
                reason=DenyReason.NOBODY_TO_ASK,
                hint="shell needs an approval and nobody can be asked: let an owner open the page or a direct chat.",
            ),
        ),
    ],
)
def test_decision_has_a_reason_and_a_hint(approval: ApprovalMode, askable: bool, verdict: Decision) -> None:
    assert decided(SPEC, replace(POLICY, approval={"main": approval}), session(), askable=askable) == verdict


def command_decided(command: str, rules: Sequence[Rule] = (), *, askable: bool = True) -> Decision:
    call_scope = CallScope(risk=Risk.EXECUTE, subjects=(f"command:{command}",), workspace="/w/ann")
    return decide(SPEC, replace(POLICY, rules=tuple(rules)), session(), call_scope, askable=askable)


def test_command_that_only_reads_is_allowed_and_says_so() -> None:
    allowed = Allow(because="every part of the command only reads", no_network=True)
    assert command_decided("ls") == allowed


def test_write_outside_is_refused_as_an_invalid_argument() -> None:
    found = command_decided("echo x > /etc/motd")
    assert isinstance(found, Deny)
    assert (found.reason, found.rule) == (DenyReason.INVALID_ARGUMENTS, None)
    assert found.hint.startswith("'/etc/motd' is outside the workspace.")


def test_rule_that_asks_is_named_where_nobody_can_be_asked() -> None:
    asks = Rule(
        tool="shell", pattern="make *", decision=Verdict.ASK, kinds=frozenset({"main"}), locked=False, where="rules[3]"
    )
    found = command_decided("make all", [asks], askable=False)
    assert isinstance(found, Deny)
    assert (found.reason, found.rule) == (DenyReason.NOBODY_TO_ASK, asks)


# --- call scope --------------------------------------------------------------------------------------

HERE, ELSEWHERE = "example.org", "example.net"


def scoped(scopes: Iterable[str], call_scope: CallScope) -> Grant | None:
    """Return the grant of one of these scopes that covers a call."""
    return covering([scope_grant(scope) for scope in scopes], "shell", "", call_scope)


ASKED = {"main": ApprovalMode.ASK}
ALLOWED = {"main": ApprovalMode.ALLOW}
DENIED = {"main": ApprovalMode.DENY}
NOBODY, NO = DenyReason.NOBODY_TO_ASK, DenyReason.CONFIGURED


@pytest.mark.parametrize(
    ("risk", "scope", "permitted", "approval", "askable", "verdict"),
    [
        # A read call needs no approval, unless the owner denies the tool.
        (Risk.NONE, "", (), {}, True, Allow),
        (Risk.READ, "", (), {}, True, Allow),
        (Risk.READ, "", (), ASKED, True, Allow),
        (Risk.READ, "", (), ASKED, False, Allow),
        (Risk.READ, "", (), ALLOWED, True, Allow),
        (Risk.READ, "", (), DENIED, True, NO),
        # A scope allowed in this session is not asked about again.
        (Risk.NETWORK, HERE, (HERE,), {}, True, Allow),
        (Risk.NETWORK, HERE, (HERE,), {}, False, Allow),
        (Risk.NETWORK, HERE, (HERE, ELSEWHERE), ASKED, True, Allow),
        (Risk.NETWORK, HERE, (HERE,), ALLOWED, True, Allow),
        (Risk.NETWORK, HERE, (HERE,), DENIED, True, NO),
        # Another scope, or none, is asked about.
        (Risk.NETWORK, HERE, (ELSEWHERE,), {}, True, Ask),
        (Risk.NETWORK, HERE, (f"www.{HERE}", f"{HERE}:8080", "org", HERE.upper()), {}, True, Ask),
        (Risk.NETWORK, HERE, (), {}, True, Ask),
        (Risk.NETWORK, HERE, (), ASKED, True, Ask),
        (Risk.NETWORK, HERE, (), {}, False, NOBODY),
        (Risk.NETWORK, HERE, (), ALLOWED, True, Allow),
        (Risk.NETWORK, HERE, (), DENIED, True, NO),
        (Risk.NETWORK, "", (HERE,), {}, True, Ask),
        (Risk.NETWORK, "", ("",), {}, True, Ask),
        (Risk.EXECUTE, "", (HERE,), {}, True, Ask),
        (Risk.EXECUTE, "", (), {}, False, NOBODY),
        (Risk.WRITE, "", (), DENIED, True, NO),
    ],
)
def test_decision_uses_the_call_scope(
    risk: Risk,
    scope: str,
    permitted: tuple[str, ...],
    approval: Mapping[str, ApprovalMode],
    askable: bool,
    verdict: type[Allow | Ask] | DenyReason,
) -> None:
    call_scope, policy = CallScope(risk=risk, scope=scope), replace(POLICY, approval=approval)
    # The call scope's risk replaces the spec's. A configured "allow" covers the spec's own, and so does an "ask".
    for own_risk in [risk] if approval == ALLOWED else set(Risk) - ({risk} if approval == ASKED else set()):
        spec = replace(SPEC, risk=own_risk)
        found = decide(spec, policy, session(), call_scope, askable=askable, grant=scoped(permitted, call_scope))

        assert (found.reason if isinstance(found, Deny) else type(found)) is verdict


@pytest.mark.parametrize(
    ("risk", "verdict"), [(Risk.NETWORK, Allow), (Risk.READ, Allow), (Risk.EXECUTE, Ask), (Risk.WRITE, Ask)]
)
def test_configured_allow_covers_only_the_own_risk(risk: Risk, verdict: type[Allow | Ask]) -> None:
    spec, policy = replace(SPEC, risk=Risk.NETWORK), replace(POLICY, approval=ALLOWED)
    assert type(decide(spec, policy, session(), CallScope(risk=risk), askable=True)) is verdict


@pytest.mark.parametrize("risk", list(Risk))
def test_scope_outside_the_settings_is_refused_at_any_risk(risk: Risk) -> None:
    call_scope = CallScope(risk=risk, scope=HERE, refused="Scripts are off. The owner can turn them on.")

    assert refused(call_scope) == Deny(
        reason=DenyReason.CONFIGURED, hint="Scripts are off. The owner can turn them on."
    )
    assert refused(replace(call_scope, refused="")) is None


@pytest.mark.parametrize("call_scope", [CallScope(risk=Risk.READ), CallScope(risk=Risk.NETWORK, scope=HERE)])
def test_invalid_approval_denies_with_a_call_scope(call_scope: CallScope) -> None:
    policy = replace(POLICY, approval={"main": cast(ApprovalMode, "yes")})
    found = decide(SPEC, policy, session(), call_scope, askable=True, grant=scoped((HERE,), call_scope))

    assert isinstance(found, Deny)
    assert found.reason is DenyReason.POLICY_ERROR


@pytest.mark.parametrize(
    ("call_scope", "permitted", "verdict"),
    [
        (
            CallScope(risk=Risk.NETWORK, scope=HERE),
            (HERE,),
            Allow(because="grant g1 allows it", grant=GrantId("g1")),
        ),
        (CallScope(risk=Risk.READ, scope=HERE), (), Allow(because="read is allowed here")),
        (CallScope(risk=Risk.NETWORK, scope=HERE), (), Ask(because="network needs an approval")),
    ],
)
def test_decision_reason_names_the_call_scope(
    call_scope: CallScope, permitted: tuple[str, ...], verdict: Decision
) -> None:
    assert decide(SPEC, POLICY, session(), call_scope, askable=True, grant=scoped(permitted, call_scope)) == verdict


@pytest.mark.parametrize("risk", [Risk.NONE, Risk.READ])
def test_harmless_tool_is_asked_about_when_configured_so(risk: Risk) -> None:
    spec, policy = replace(SPEC, risk=risk), replace(POLICY, approval=ASKED)
    assert type(decided(spec, policy, session())) is Ask


@pytest.mark.parametrize(
    ("subject", "valid"),
    [
        ("path:notes/july.md", True),
        ("path:..notes", True),
        ("path:/etc/passwd", False),
        ("path:a/../../b", False),
        ("path:..", False),
        ("path:", False),
        ("host:example.org", True),
        ("host:xn--exmple-cua.org:8080", True),
        ("host:ex\u0430mple.org", False),
        ("host:Example.org", False),
        ("command:rm -rf /", True),
        ("command:", False),
        ("planet:mars", False),
        ("", False),
    ],
)
def test_subject_that_no_rule_can_match_is_refused(subject: str, valid: bool) -> None:
    found = refused(CallScope(risk=Risk.READ, subjects=("path:a", subject)))
    assert (found is None) is valid
    reason = DenyReason.INVALID_ARGUMENTS if subject.startswith("path:") else DenyReason.POLICY_ERROR
    assert found is None or found.reason is reason


def test_read_call_of_an_asking_tool_is_allowed() -> None:
    policy = replace(POLICY, approval=ASKED)

    assert decide(SPEC, policy, session(), CallScope(risk=Risk.READ), askable=True) == Allow(
        because="read is allowed here"
    )


def test_allow_reason_names_the_risk_of_the_call() -> None:
    spec, policy = replace(SPEC, risk=Risk.NETWORK), replace(POLICY, approval=ALLOWED)

    assert decided(spec, policy, session()) == Allow(because="network is allowed here")


@pytest.mark.parametrize(
    ("availability", "words"),
    [
        (Availability.ALWAYS, "everywhere"),
        (Availability.MAIN, "main sessions only"),
        (Availability.NON_MAIN, "everywhere but main sessions"),
        (Availability.BLOCKED, "blocked"),
    ],
)
def test_every_availability_has_words(availability: Availability, words: str) -> None:
    assert describe_availability(availability) == words
