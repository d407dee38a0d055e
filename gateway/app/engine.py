"""The part of a daemon that runs turns, wired: questions, tools, families, summaries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from config.settings import SandboxSettings
from gateway.agent.attachments import Attachments
from gateway.agent.compaction import Compaction
from gateway.agent.prompt import PromptBuilder
from gateway.agent.runner import TurnWorker
from gateway.agent.turn import TurnRunner
from gateway.app.core import Core
from gateway.domain.sessions import SessionKind
from gateway.ports import Channel
from gateway.sandbox import ProcessLimits
from gateway.toolcalls.execution import Execution
from gateway.toolcalls.permits import PermitOffice
from gateway.toolcalls.scheduler import ToolCalls
from gateway.toolcalls.subsessions import SubsessionService

SYSTEM_PROMPT = Path(__file__).with_name("system_prompt.md")
CHILD_PROMPT = Path(__file__).with_name("child_prompt.md")


def make_sessions(core: Core, channels: Mapping[str, Channel]) -> TurnWorker:
    """Wire what claims and runs turns."""
    store, settings, families = core.store, core.loaded.settings, _subsessions(core)
    turns = TurnRunner(
        queue=store,
        journal=store,
        queries=store,
        events=store.live,
        calls=_calls(core, families),
        subsessions=families,
        prompts=_questions(core),
        models=core.models,
        operator=core.operator,
        clock=core.clock,
        metrics=core.metrics,
        points=core.points,
        redactor=core.redactor,
        elsewhere=frozenset(owner for owner, who in settings.owners.items() if who),
        streams=[name for name, channel in channels.items() if channel.streams],
        attachments=Attachments(
            channels=channels, workspaces=core.workspaces.workspace, journal=store, redactor=core.redactor
        ),
        limits=core.loaded.limits,
        currency=settings.model.currency,
    )
    compaction = Compaction(
        queries=store,
        usage=store,
        models=core.models,
        clock=core.clock,
        redactor=core.redactor,
        context_tokens=settings.model.context_tokens,
    )
    return TurnWorker(
        node=core.node,
        queue=store,
        queries=store,
        events=store.live,
        turns=turns,
        compaction=compaction,
        metrics=core.metrics,
        points=core.points,
    )


MB = 1024 * 1024


def _program_limits(settings: SandboxSettings) -> ProcessLimits:
    return ProcessLimits(
        memory_bytes=settings.memory_mb * MB, file_bytes=settings.file_mb * MB, tmp_bytes=settings.tmp_mb * MB
    )


def _calls(core: Core, subsessions: SubsessionService) -> ToolCalls:
    store, settings = core.store, core.loaded.settings.sessions
    other = settings.approval_expiry_other
    return ToolCalls(
        registry=core.registry,
        journal=store,
        queries=store,
        events=store.live,
        approvals=core.approvals,
        execution=Execution(
            office=PermitOffice(),
            workspaces=core.workspaces,
            containment=core.containment,
            clock=core.clock,
            events=store.live,
            metrics=core.metrics,
            redactor=core.redactor,
            subsessions=subsessions,
            program_limits=_program_limits(core.loaded.sandbox),
        ),
        clock=core.clock,
        metrics=core.metrics,
        points=core.points,
        limits=core.loaded.limits,
        expiry={
            SessionKind.MAIN: settings.approval_expiry_main,
            SessionKind.DM: other,
            SessionKind.NON_MAIN: other,
        },
    )


def _subsessions(core: Core) -> SubsessionService:
    return SubsessionService(
        children=core.store,
        queries=core.store,
        registry=core.registry,
        agents=core.loaded.agents,
        models=core.models,
        limits=core.loaded.limits,
        clock=core.clock,
        redactor=core.redactor,
    )


def _questions(core: Core) -> PromptBuilder:
    return PromptBuilder(
        queries=core.store,
        registry=core.registry,
        outputs=core.workspaces.outputs,
        workspaces=core.workspaces.workspace,
        system=SYSTEM_PROMPT.read_text(encoding="utf-8"),
        child_system=CHILD_PROMPT.read_text(encoding="utf-8"),
        instructions=core.loaded.instructions,
        agents=core.loaded.agents,
        context_tokens=core.loaded.settings.model.context_tokens,
    )
