"""Control commands at ingress: effect and reply of each, from what the store holds. Used by ingress."""

from __future__ import annotations

from datetime import UTC, timedelta

from gateway.domain.budgets import BudgetLimits
from gateway.domain.ids import OwnerName, Person, Principal
from gateway.domain.messages import Inbound
from gateway.domain.routes import Route, empty_session
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.text import split_command
from gateway.domain.turns import STOPPED_TEXT
from gateway.inbound import commands
from gateway.inbound.grant_commands import grants_command, seen_by
from gateway.inbound.session_limits import SWITCHES, answer, change_preset, switch_tool
from gateway.inbound.why import WhyReplies
from gateway.policy.budgets import Spender, budget_text
from gateway.policy.routing import AllowedPeople, may_begin_anew, may_stop_all
from gateway.ports import Budgets, Children, Clock, Control, ControlEffect, Grants, Queries, UsageStore
from gateway.toolcalls.jobs import Jobs
from gateway.toolcalls.registry import Registry


class ControlReplies:
    """Maker of effects and replies for control commands."""

    def __init__(
        self,
        *,
        children: Children,
        usage: UsageStore,
        queries: Queries,
        people: AllowedPeople,
        registry: Registry,
        jobs: Jobs,
        clock: Clock,
        model_name: str,
        currency: str,
        budgets: Budgets,
        limits: BudgetLimits,
        grants: Grants,
        why: WhyReplies,
    ) -> None:
        """Take the sources of the replies; `currency` is that of the configured prices, `limits` are the budgets."""
        self._budgets = budgets
        self._limits = limits
        self._grants = grants
        self._why = why
        self._children = children
        self._usage_store = usage
        self._queries = queries
        self._people = people
        self._registry = registry
        self._jobs = jobs
        self._clock = clock
        self._model_name = model_name
        self._currency = currency

    async def of(self, name: str, message: Inbound, found: Route) -> Control:
        """Return the effect and the reply of a command. Reads only: the store applies both with the command's row."""
        match name:
            case "stop":
                only = None if may_stop_all(message, self._people) else message.principal
                return Control(
                    effect=ControlEffect.STOP,
                    only=only,
                    reply=STOPPED_TEXT,
                    idle=STOPPED_TEXT
                    if self._jobs.live(found.session, only)
                    else "Nothing is running or waiting here.",
                    stopped_text=STOPPED_TEXT,
                )
            case "new" if may_begin_anew(message, self._people):
                return Control(
                    effect=ControlEffect.RESET,
                    only=None,
                    reply="A new history begins here.",
                    idle="",
                    stopped_text=STOPPED_TEXT,
                )
            case "new":
                return answer("Only an owner can begin a new history here.")
            case "plan" | "build" | "preset":
                session, tools = await self._session(found), self._registry.snapshot()
                rest, owner = _rest(message), self._people.owner_of(message.principal) is not None
                return change_preset(name, rest, session, tools, owner=owner)
            case "tools" if _rest(message).split(" ")[0] in SWITCHES:
                session, tools = await self._session(found), self._registry.snapshot()
                owner = self._people.owner_of(message.principal) is not None
                return switch_tool(_rest(message), session, tools, owner=owner)
            case "grants":
                session, owner = await self._session(found), self._people.owner_of(message.principal)
                seen = await seen_by(self._grants, self._queries, owner, session)
                return grants_command(_rest(message), seen, self._name_of, owner=owner is not None)
            case _:
                return answer(await self._reply(name, message, found))

    def _name_of(self, who: Principal) -> str:
        return self._people.owner_of(who) or who

    async def hides(self, word: str, found: Route) -> bool:
        """Return whether the tool of a command must look like one that nobody has: owners get the reason instead."""
        tools = self._registry.snapshot()
        spec = tools.commands.get(word)
        if spec is None or found.kind is SessionKind.MAIN:
            return False
        return tools.is_hidden(spec.name, await self._session(found))

    async def _session(self, found: Route) -> Session:
        return await self._queries.session(found.session) or empty_session(found, self._clock.now())

    async def _reply(self, name: str, message: Inbound, found: Route) -> str:
        session = await self._session(found)
        owner = self._people.owner_of(message.principal)
        match name:
            case "help":
                return commands.help_text(self._registry.snapshot(), session, _rest(message))
            case commands.START:
                return commands.start_text(self._registry.snapshot(), session)
            case "tools":
                return commands.tools_text(self._registry.snapshot(), session, owner=owner is not None)
            case "status" | "sessions" | "approvals" | "tree":
                return await self._list(name, session, owner)
            case "why":
                return await self._why.reply(_rest(message), message, session, owner=owner is not None)
            case "usage":
                return await self._usage(message.principal, session, owner)
            case _:
                return commands.unknown_text(
                    name, [tool.spec.by_hand for tool in self._registry.snapshot().seen_by(session)]
                )

    async def _list(self, name: str, session: Session, owner: OwnerName | None) -> str:
        """Return a list from the store, limited to what this session may see."""
        match name:
            case "status":
                counts, lines = await self._queries.counts(), await self._queries.sessions(0, 0, always=session.id)
                jobs = self._jobs.running(session.id)
                return commands.status_text(counts, lines, session, self._model_name, self._clock.now(), jobs)
            case "sessions":
                return commands.sessions_text(await self._queries.sessions(ended=0), owner, session)
            case "approvals":
                waits = await self._queries.open_approvals()
                found = [
                    await self._queries.session(asking) for asking in dict.fromkeys(wait.session for wait in waits)
                ]
                known = {one.id: one for one in found if one is not None}
                return commands.approvals_text(waits, known, owner, session)
            case _:
                return commands.tree_text(await self._children.family(session.id))

    async def _usage(self, who: Principal, session: Session, owner: OwnerName | None) -> str:
        """Return usage: an owner in main sees that owner's persons and everybody, anyone else their own tokens."""
        main = owner is not None and session.kind is SessionKind.MAIN
        own = self._people.owners[owner] if owner is not None and main else frozenset([who])
        today = self._clock.now().astimezone(UTC).date()
        spent = await self._usage_store.spent(today - timedelta(days=commands.USAGE_DAYS - 1))
        text = commands.usage_text(spent, commands.UsageScope(persons=own, all=main), today, self._currency)
        spender = Spender(
            person=Person(self._people.owner_of(who) or who),
            session=session.id,
            epoch=session.epoch,
            kind=session.kind,
        )
        uses = await self._budgets.budget_uses() if self._limits.any else ()
        budgets = budget_text(uses, self._limits, spender, today, self._currency, everybody=main)
        return "\n\n".join(filter(None, [text, budgets]))


def _rest(message: Inbound) -> str:
    """Return the text after the command."""
    command = split_command(message.text)
    return "" if command is None else command[1].strip()
