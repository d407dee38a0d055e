"""Wiring of the daemon's services, each from a `Core`. `gateway.app.build` joins them; tests take single ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gateway.agent.attachments import Attachments
from gateway.agent.budgets import BudgetKeeper
from gateway.agent.compaction import Compaction
from gateway.agent.prompt import PromptBuilder
from gateway.agent.spoken_answers import SpokenAnswers
from gateway.agent.transcription import Listener
from gateway.agent.turn import TurnRunner
from gateway.agent.window import HISTORY_TURNS
from gateway.agent.worker import TurnWorker
from gateway.app.core import Core
from gateway.app.hook_loader import load_hooks
from gateway.app.membership import Membership
from gateway.app.node_entry import entry_of, own_version, roles_of
from gateway.app.own_tools import program_limits
from gateway.app.retention import HistoryTrimmer
from gateway.app.shared_disk import SharedDisk
from gateway.app.store_note import StoreNote
from gateway.domain.children import with_own_agents
from gateway.domain.nodes import Role, Standing, name_of
from gateway.domain.retention import Keep
from gateway.domain.sessions import SessionKind
from gateway.inbound.ingress import Ingress
from gateway.inbound.why import WhyReplies
from gateway.ports import Channel, ChannelContext, Endpoint, WithAccounts
from gateway.server import node_files, node_inbox, node_uploads
from gateway.server.channel_host import DaemonChannelHost, NamespacedKeyValue
from gateway.server.control_commands import ControlCommands
from gateway.server.http import HttpServer
from gateway.server.node_files import NodeFiles
from gateway.server.node_inbox import NodeInbox
from gateway.server.node_requests import NodeRequests
from gateway.server.node_uploads import NodeUploads
from gateway.server.page.adapter import WebChannel
from gateway.server.page.uploads import Uploads
from gateway.server.request_guard import Address
from gateway.server.web_access import WebAccess
from gateway.store import is_shared
from gateway.toolcalls.execution import Execution
from gateway.toolcalls.inquiries import InquiryService
from gateway.toolcalls.posts import ChannelPlaces, MessageService
from gateway.toolcalls.scheduler import ToolCalls
from gateway.toolcalls.subsessions import SubsessionService

SYSTEM_PROMPT = Path(__file__).with_name("system_prompt.md")
CHILD_PROMPT = Path(__file__).with_name("child_prompt.md")

if TYPE_CHECKING:  # imported only where it is configured
    from gateway.llm.voice import OpenAIVoice


def make_turn_worker(core: Core, turns: TurnRunner, compaction: Compaction) -> TurnWorker:
    """Wire the claiming of turns."""
    return TurnWorker(
        node=core.node,
        queue=core.store,
        queries=core.store,
        events=core.store.event_bus,
        turns=turns,
        compaction=compaction,
        metrics=core.metrics,
        points=core.points,
        gate=core.gates[Role.WORKER],
        home=core.home,
        at_once=core.loaded.settings.cluster.turns_at_once,
    )


def make_node_files(core: Core) -> NodeFiles:
    """Wire the finding of outputs on all nodes."""
    return NodeFiles(
        requests=_node_requests(core, "outputs for other nodes", node_files.PATH, node_files.NAMES),
        home=core.home,
        homes=core.store,
        kept=core.workspaces.kept,
        outputs=core.workspaces.outputs,
    )


def make_node_uploads(core: Core) -> NodeUploads:
    """Wire the finding of uploads on all nodes."""
    return NodeUploads(
        requests=_node_requests(core, "uploads for other nodes", node_uploads.PATH, node_uploads.NAMES),
        node=name_of(core.node) if core.home else "",
        homes=core.store,
        known=core.store,
        here=Uploads(folder=core.loaded.state / "uploads", clock=core.clock),
    )


def make_node_inbox(core: Core) -> NodeInbox:
    """Wire the finding of files that people sent, on all nodes."""
    return NodeInbox(
        requests=_node_requests(core, "inboxes for other nodes", node_inbox.PATH, node_inbox.NAMES),
        home=core.home,
        homes=core.store,
        workspace=core.workspaces.known_workspace,
    )


def _node_requests(core: Core, purpose: str, path: str, names: tuple[str, ...]) -> NodeRequests:
    return NodeRequests(path=path, names=names, key=core.key.derived(purpose), client=core.client, clock=core.clock)


def make_membership(core: Core) -> Membership:
    """Wire this daemon's place among the nodes of its store."""
    entry = entry_of(core.loaded, core.node, core.key_mark, core.home)
    owners, url = core.loaded.settings.owners, core.loaded.settings.store.url
    note = StoreNote(state=core.loaded.state, url=url, store=core.store)
    return Membership(
        entry=entry,
        node=core.store,
        events=core.store.event_bus,
        place=SharedDisk(workspaces=core.workspaces.folder) if core.home else None,
        owners=owners,
        gates=core.gates,
        terms=lambda: core.store.terms,
        note=note.keep if core.store.identity else None,
    )


def make_compaction(core: Core) -> Compaction:
    """Wire the summaries of long histories."""
    return Compaction(
        queries=core.store,
        usage=core.store,
        models=core.models,
        clock=core.clock,
        redactor=core.redactor,
        budgets=make_budgets(core),
        context_tokens=core.loaded.settings.model.context_tokens,
    )


def make_history_trimmer(core: Core) -> HistoryTrimmer:
    """Wire the removal of old turns."""
    keep = core.loaded.settings.sessions.keep
    return HistoryTrimmer(
        node_id=core.node,
        retention=core.store,
        node=core.store,
        queries=core.store,
        keep=Keep(turns=keep.turns, age=keep.age, window=HISTORY_TURNS),
        metrics=core.metrics,
        workspaces=core.workspaces,
        clock=core.clock,
        is_alone=not is_shared(core.loaded.settings.store.url),
        audit_age=core.loaded.settings.audit.keep.age,
    )


def make_budgets(core: Core) -> BudgetKeeper:
    """Wire the reserving of budgets."""
    model = core.loaded.settings.model
    prices = list(model.prices.values())
    return BudgetKeeper(
        store=core.store,
        usage=core.store,
        queries=core.store,
        people=core.people,
        clock=core.clock,
        limits=core.loaded.budgets,
        dearest=(max((one.input for one in prices), default=0), max((one.output for one in prices), default=0)),
        currency=model.currency,
    )


def make_turn_runner(core: Core, channels: Mapping[str, Channel]) -> TurnRunner:
    """Wire the running of a claimed turn, with its calls and sub-sessions."""
    store, settings = core.store, core.loaded.settings
    subsessions = make_subsessions(core)
    voice = make_voice(core)
    return TurnRunner(
        queue=store,
        journal=store,
        queries=store,
        events=store.event_bus,
        calls=make_tool_calls(core, subsessions),
        registry=core.registry,
        subsessions=subsessions,
        budgets=make_budgets(core),
        prompts=make_prompts(core),
        models=core.models,
        operator=core.operator,
        clock=core.clock,
        metrics=core.metrics,
        points=core.points,
        redactor=core.redactor,
        elsewhere=frozenset(owner for owner, who in settings.owners.items() if who),
        streams=[name for name, channel in channels.items() if channel.streams],
        attachments=Attachments(
            channels=channels,
            workspaces=core.workspaces.workspace,
            journal=store,
            redactor=core.redactor,
            listener=Listener(transcriber=voice, redactor=core.redactor),
        ),
        speech=make_speech(core, voice),
        limits=core.loaded.limits,
        currency=settings.model.currency,
    )


def make_posting(core: Core) -> MessageService:
    """Wire the posts of calls to the configured channels."""
    channels = {
        name: ChannelPlaces(accounts=channel.accounts, posts=channel.spec.posts, message_of=channel.spec.message_of)
        for name, channel in core.loaded.channels.items()
    }
    return MessageService(people=core.people, channels=channels, turn=core.store.turn, redactor=core.redactor)


def make_speech(core: Core, voice: OpenAIVoice | None) -> SpokenAnswers | None:
    """Return the maker of spoken answers; None where they are not configured."""
    if voice is None or not core.loaded.settings.voice.speak:
        return None
    return SpokenAnswers(speaker=voice, outputs=core.workspaces.outputs, redactor=core.redactor)


def make_voice(core: Core) -> OpenAIVoice | None:
    """Return the configured server of voice messages; None without one."""
    voice = core.loaded.settings.voice
    if voice.base_url is None:
        return None
    from gateway.llm.voice import OpenAIVoice  # only where it is configured

    return OpenAIVoice(
        core.client,
        base_url=voice.base_url,
        api_key=voice.api_key.get_secret_value() if voice.api_key else None,
        model=voice.model,
        language=voice.language,
        speech=voice.speak,
        proxy=voice.proxy.way if voice.proxy else None,
    )


def make_tool_calls(core: Core, subsessions: SubsessionService) -> ToolCalls:
    """Wire the deciding and running of tool calls."""
    store, settings = core.store, core.loaded.settings.sessions
    other, limits = settings.approval_expiry_other, program_limits(core.loaded.sandbox)
    hooks = load_hooks(core.loaded.hooks, core.containment, limits, core.redactor)
    execution = Execution(
        workspaces=core.workspaces,
        containment=core.containment,
        clock=core.clock,
        events=store.event_bus,
        metrics=core.metrics,
        redactor=core.redactor,
        subsessions=subsessions,
        inquiries=InquiryService(inquiries=core.store, redactor=core.redactor, expiry=settings.question_expiry),
        messages=make_posting(core),
        key_value=core.store,
        hooks=hooks,
        jobs=core.jobs,
        workers=core.workers,
        program_limits=limits,
    )
    return ToolCalls(
        journal=store,
        queries=store,
        events=store.event_bus,
        approvals=core.approvals,
        execution=execution,
        workspaces=core.workspaces,
        containment=core.containment,
        changes=execution.changes,
        redactor=core.redactor,
        hooks=hooks,
        clock=core.clock,
        metrics=core.metrics,
        points=core.points,
        limits=core.loaded.limits,
        expiry={
            SessionKind.MAIN: settings.approval_expiry_main,
            SessionKind.DM: other,
            SessionKind.NON_MAIN: other,
        },
        escalate_after=settings.escalate_after,
        grant_lasts=settings.grant_expiry,
    )


def make_subsessions(core: Core) -> SubsessionService:
    """Wire the spawning of sub-sessions."""
    return SubsessionService(
        children=core.store,
        journal=core.store,
        queries=core.store,
        registry=core.registry,
        agents=with_own_agents(core.loaded.agents),
        models=core.models,
        limits=core.loaded.limits,
        clock=core.clock,
        redactor=core.redactor,
        events=core.store.event_bus,
    )


def make_prompts(core: Core) -> PromptBuilder:
    """Wire the building of prompts."""
    return PromptBuilder(
        queries=core.store,
        outputs=core.workspaces.outputs,
        workspaces=core.workspaces.workspace,
        find=make_node_files(core).find,
        system=SYSTEM_PROMPT.read_text(encoding="utf-8"),
        child_system=CHILD_PROMPT.read_text(encoding="utf-8"),
        instructions=core.loaded.instructions,
        agents=core.loaded.agents,
        context_tokens=core.loaded.settings.model.context_tokens,
    )


def make_channel_host(core: Core) -> DaemonChannelHost:
    """Wire what a channel may do besides pushing messages."""
    return DaemonChannelHost(
        node_id=core.node,
        node=core.store,
        outbox=core.store,
        owners=core.loaded.settings.owners,
        registry=core.registry,
        clock=core.clock,
        gate=core.gates[Role.INGRESS],
    )


def make_context(core: Core, name: str, settings: Any) -> ChannelContext:
    """Return the context of a channel."""
    return ChannelContext(
        name=name,
        settings=settings,
        host=make_channel_host(core),
        key_value=NamespacedKeyValue(key_value=core.store, namespace=f"channel/{name}"),
        client=core.client,
        public_url=core.loaded.settings.http.public_url or "",
        clock=core.clock,
        fail_point=core.points.hit,
    )


def make_page(core: Core, web_access: WebAccess) -> WebChannel:
    """Wire the web page."""
    return WebChannel(
        web_api=web_access,
        recordings=web_access,
        clock=core.clock,
        signed_in_for=core.loaded.settings.web.cookie_lifetime,
        uploads=make_node_uploads(core),
        fail_point=core.points.hit,
    )


def make_control_commands(core: Core, web_access: WebAccess, http: HttpServer, ingress: Ingress) -> ControlCommands:
    """Wire the answers to `dragoman` commands."""
    return ControlCommands(
        web_access=web_access,
        http=http,
        ingress=ingress,
        queries=core.store,
        audit=core.store,
        grants=core.store,
        node=core.store,
        why=make_why(core),
        events=core.store.event_bus,
        clock=core.clock,
        owners=list(core.people.owners),
        page=core.loaded.settings.web.enabled,
        page_here=Role.INGRESS in roles_of(core.loaded) or bool(core.loaded.settings.http.public_url),
    )


def make_web_access(core: Core) -> WebAccess:
    """Wire what the web page may see and ask."""
    return WebAccess(
        accounts=core.store,
        queries=core.store,
        events=core.store.event_bus,
        registry=core.registry,
        approvals=core.approvals,
        clock=core.clock,
        find=make_node_files(core).find,
        inbox=make_node_inbox(core).read,
        model_name=core.loaded.settings.model.name,
        version=own_version(),
        signed_in_for=core.loaded.settings.web.cookie_lifetime,
        currency=core.loaded.settings.model.currency,
        warning=lambda: core.store.terms.warning,
        redactor=core.redactor,
    )


def make_why(core: Core) -> WhyReplies:
    """Wire the answers to /why."""
    return WhyReplies(
        queries=core.store,
        audit=core.store,
        grants=core.store,
        registry=core.registry,
        containment=core.containment,
        workspace=core.workspaces.workspace,
        home=core.workspaces.home,
        redactor=core.redactor,
        clock=core.clock,
    )


def make_ingress(core: Core) -> Ingress:
    """Wire the ingress."""
    return Ingress(
        intake=core.store,
        children=core.store,
        usage=core.store,
        queries=core.store,
        people=core.people,
        registry=core.registry,
        approvals=core.approvals,
        clock=core.clock,
        metrics=core.metrics,
        points=core.points,
        model_name=core.loaded.settings.model.name,
        running=core.loaded.settings.sessions.message_while_running,
        key_value=core.store,
        events=core.store.event_bus,
        jobs=core.jobs,
        currency=core.loaded.settings.model.currency,
        budgets=core.store,
        grants=core.store,
        why=make_why(core),
        limits=core.loaded.budgets,
        messages_per_minute=core.loaded.messages_per_minute,
    )


def make_http(
    core: Core,
    web_access: WebAccess,
    endpoints: list[Endpoint],
    channels: Mapping[str, Channel],
    standing: Callable[[], Standing],
) -> HttpServer:
    """Wire the HTTP server."""
    settings, own = core.loaded.settings.http, core.loaded.settings.cluster.address
    for_nodes = [
        one for make in (make_node_files, make_node_inbox, make_node_uploads) for one in make(core).endpoints()
    ]
    address = Address(
        host=settings.host,
        port=settings.port,
        public_url=settings.public_url or "",
        allowed_hosts=(*settings.allowed_hosts, *([urlsplit(own).netloc] if own else [])),
        trusted_proxies=settings.trusted_proxies,
    )
    return HttpServer(
        address=address,
        endpoints=[*(endpoints if Role.INGRESS in standing().roles else ()), *for_nodes],
        sign_ins=web_access,
        health=core.store,
        metrics=core.metrics,
        clock=core.clock,
        troubles=lambda: [found for channel in channels.values() if (found := channel.trouble())],
        accounts_up=partial(_accounts_up, channels),
        standing=standing,
    )


def _accounts_up(channels: Mapping[str, Channel]) -> dict[tuple[str, str], bool]:
    """Say whether each account works now; of a channel that does not know its accounts, whether all of it does."""
    up: dict[tuple[str, str], bool] = {}
    for name, channel in channels.items():
        accounts = channel.accounts_up() if isinstance(channel, WithAccounts) else {"": not channel.trouble()}
        up.update({(name, account): works for account, works in accounts.items()})
    return up
