"""Files in deploy/: they can be read, fit each other and the daemon, and what they start does start."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from config.load import load
from config.plugins import tool_specs
from gateway.domain.durability import StoreTerms
from gateway.errors import StoreError
from gateway.store import check_store
from gateway.store.redis.checks import SCHEMA
from gateway.store.redis.connection import connect
from tests.support.daemon import ROOT, Daemon, environment, running
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.redis_server import until_linked, wait_until_it_answers
from tests.support.warm import STEM

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
ENV = {
    "DRAGOMAN_CLUSTER_KEY": "k" * 64,
    "REDIS_PASSWORD": "p" * 48,
    "DRAGOMAN_PUBLIC_URL": "https://chat.example.org",
}
OF_PROMETHEUS = frozenset({"up"})
"""Metrics that the daemon does not have to have."""
# What the mutation tester brings along: another package on Python 3.13.
yaml: Any = importlib.import_module("yaml" if find_spec("yaml") else "yaml_ft")


def read_all(path: Path) -> list[Any]:
    """Return the documents of a YAML file."""
    return list(yaml.safe_load_all(path.read_text()))


def compose() -> Any:
    """Return the compose file of three daemons, with the variables filled in."""
    (found,) = read_all(DEPLOY / "compose.redis.yaml")
    return filled(found)


def filled(value: Any) -> Any:
    """Return a value with the variables of the shell, as compose fills them in."""
    match value:
        case str():
            return re.sub(r"\$\{(\w+)(?::[?-]([^}]*))?\}", lambda one: ENV.get(one[1], one[2] or ""), value)
        case list():
            return [filled(one) for one in cast(list[Any], value)]
        case dict():
            return {name: filled(one) for name, one in cast(dict[str, Any], value).items()}
        case _:
            return value


def nodes() -> Mapping[str, Any]:
    """Return the daemons of the compose file."""
    return {name: one for name, one in compose()["services"].items() if name.startswith("node-")}


def test_every_yaml_and_json_can_be_read() -> None:
    found = [*DEPLOY.rglob("*.yaml")]
    assert len(found) > 6
    assert all(read_all(path) for path in found)
    assert all(json.loads(path.read_text()) for path in DEPLOY.rglob("*.json"))


def test_three_nodes_differ_in_name_and_volume_alone() -> None:
    found = nodes()
    assert [one["hostname"] for one in found.values()] == ["node-1", "node-2", "node-3"]
    assert [one["volumes"] for one in found.values()] == [[f"{name}:/var/lib/dragoman"] for name in found]
    rest = [{key: one[key] for key in one if key not in ("hostname", "volumes")} for one in found.values()]
    assert rest[0] == rest[1] == rest[2]
    volumes = {one.split(":")[0] for service in compose()["services"].values() for one in service.get("volumes", ())}
    assert {one for one in volumes if not one.startswith(".")} == set(compose()["volumes"])


def test_the_proxy_knows_all_nodes() -> None:
    ports = re.findall(r"node-\d+:\d+", (DEPLOY / "Caddyfile").read_text())
    assert ports == [f"{name}:8470" for name in nodes()]
    address = compose()["services"]["proxy"]["networks"]["web"]["ipv4_address"]
    assert {one["environment"]["DRAGOMAN_HTTP__TRUSTED_PROXIES"] for one in nodes().values()} == {address}


def asks_as(daemon: Daemon) -> dict[str, str]:
    """Return the header with which the proxy looks at a daemon; tests' daemons have ports of their own."""
    (host,) = re.findall(r"health_headers \{\s+Host (\S+)\s+\}", (DEPLOY / "Caddyfile").read_text())
    return {"Host": host.replace(":8470", f":{daemon.port}")}


@contextmanager
def started(service: str, folder: Path, places: Mapping[str, str]) -> Generator[int]:
    """Start a Valkey as the compose file does, with the program that is here. `places`: other words for its own."""
    program = shutil.which("valkey-server") or shutil.which("redis-server")
    assert program is not None, "redis-server is missing (Debian: apt install redis-server)."
    command, port = compose()["services"][service]["command"], free_port()
    (data := folder / service).mkdir()
    here = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(data), "--repl-diskless-sync-delay", "0"]
    words = [program, *(places.get(word, word) for word in command[1:]), *here]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as server:
        wait_until_it_answers(port)
        yield port
        server.kill()


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The addresses of Valkey and of its replica."""
    with (
        started("redis", tmp_path, {}) as port,
        started("redis-replica", tmp_path, {"redis": "127.0.0.1", "6379": str(port)}) as other,
    ):
        until_linked(other, before=f"AUTH {ENV['REDIS_PASSWORD']}\r\n")
        first, second = (f"redis://:{ENV['REDIS_PASSWORD']}@127.0.0.1:{one}/0" for one in (port, other))
        yield first, second


def test_the_replica_may_take_the_place_of_its_primary() -> None:
    """It is as durable, and known by the same password."""
    services = compose()["services"]
    first, second = (services[name]["command"] for name in ("redis", "redis-replica"))
    same = first[: first.index("--min-replicas-to-write")]
    assert second[: len(same)] == same
    password = ENV["REDIS_PASSWORD"]
    assert second[len(same) :] == ["--masterauth", password, "--replicaof", "redis", "6379"]
    assert services["redis"]["environment"] == services["redis-replica"]["environment"]
    assert set(services["node-1"]["depends_on"]) == {"redis", "redis-replica"}


def test_a_replica_that_leads_follows_nobody_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its container is started anew some day. It must not copy a `redis` that came back old or empty."""
    (told,) = re.findall(r"export (REDIS_PRIMARY=.*)", (DEPLOY / "compose.redis.yaml").read_text())
    for name, value in (one.split("=") for one in told.split()):
        monkeypatch.setitem(ENV, name, value)
    assert "@redis-replica:6379/0" in nodes()["node-1"]["environment"]["DRAGOMAN_STORE__URL"]
    with started("redis-replica", tmp_path, {"redis": "127.0.0.1"}) as port:
        leads: Any = connect(f"redis://:{ENV['REDIS_PASSWORD']}@127.0.0.1:{port}/0")
        with leads:
            assert leads.info("replication")["role"] == "master"


async def test_compose_file_starts_working_nodes(valkey: tuple[str, str], tmp_path: Path) -> None:
    """Two of its daemons with its environment: ready for the proxy, which asks by a name of theirs.

    The replica has all they wrote. It is refused as a store until it leads.
    """
    primary, replica = valkey
    env = {name: value for name, value in nodes()["node-1"]["environment"].items() if value is not None}
    host, _, path = env["DRAGOMAN_STORE__URL"].rpartition("@")
    assert (host, path) == (primary.rpartition("@")[0], "redis:6379/0")
    env |= {"DRAGOMAN_STORE__URL": primary, "DRAGOMAN_HTTP__HOST": "127.0.0.1"}
    terms = StoreTerms(replicas=int(env["DRAGOMAN_STORE__REPLICAS"]))
    check_store(primary, terms)
    with pytest.raises(StoreError, match="is a replica"):
        check_store(replica, terms)
    daemons = [Daemon(folder=tmp_path / f"node-{n}", warm=True) for n in range(2)]
    try:
        for daemon in daemons:
            daemon.folder.mkdir()
            await daemon.start(env, ready=False)
        for daemon in daemons:
            await daemon.until_ready()
            async with aiohttp.request("GET", f"{daemon.url}/readyz", headers=asks_as(daemon)) as response:
                assert response.status == 200
        both: list[Any] = [connect(one) for one in valkey]
        assert [one.hgetall("{dragoman}:meta")["schema"] for one in both] == [str(SCHEMA)] * 2
    finally:
        for daemon in daemons:
            await daemon.kill()


def test_kubernetes_fits_together() -> None:
    folder = DEPLOY / "kubernetes"
    (kustomization,) = read_all(folder / "kustomization.yaml")
    found = {
        (one["kind"], one["metadata"]["name"]): one
        for name in kustomization["resources"]
        for one in read_all(folder / name)
    }
    assert set(kustomization["resources"]) | {"kustomization.yaml"} == {path.name for path in folder.glob("*.yaml")}
    pods = found["StatefulSet", "dragoman"]["spec"]
    labels = pods["template"]["metadata"]["labels"]
    assert labels == pods["selector"]["matchLabels"] == found["Service", "dragoman"]["spec"]["selector"]
    assert labels == found["PodDisruptionBudget", "dragoman"]["spec"]["selector"]["matchLabels"]
    assert labels == found["NetworkPolicy", "dragoman"]["spec"]["podSelector"]["matchLabels"]
    assert ("Service", pods["serviceName"]) in found
    (container,) = pods["template"]["spec"]["containers"]
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert [one["path"] for one in probes] == ["/healthz", "/healthz", "/readyz"]
    assert all(one["httpHeaders"] == [{"name": "Host", "value": "localhost:8470"}] for one in probes)
    mounted = {one["name"] for one in container["volumeMounts"]}
    volumes = {one["name"] for one in pods["template"]["spec"]["volumes"]}
    assert mounted == volumes | {one["metadata"]["name"] for one in pods["volumeClaimTemplates"]}
    assert kustomization["configMapGenerator"] == [{"name": "dragoman", "files": ["config.toml"]}]


def test_kubernetes_may_share_the_files_of_all_nodes(tmp_path: Path) -> None:
    """The patch names what is there, and the daemon takes the disk where it is mounted."""
    folder = DEPLOY / "kubernetes" / "shared-files"
    (component,) = read_all(folder / "kustomization.yaml")
    assert [*component["resources"], component["patches"][0]["path"]] == ["claim.yaml", "mount.yaml"]
    ((claim,), (patch,)) = (read_all(folder / name) for name in ("claim.yaml", "mount.yaml"))
    (base, *_) = read_all(DEPLOY / "kubernetes" / "statefulset.yaml")
    pods = patch["spec"]["template"]["spec"]
    assert (patch["kind"], patch["metadata"]) == (base["kind"], base["metadata"])
    ((container,), (volume,)) = pods["containers"], pods["volumes"]
    (known,) = base["spec"]["template"]["spec"]["containers"]
    ((mount,), (variable,)) = container["volumeMounts"], container["env"]
    assert (container["name"], mount["name"]) == (known["name"], volume["name"])
    assert mount["name"] not in {one["name"] for one in known["volumeMounts"]}
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    environ = {"DRAGOMAN_STORE__URL": "redis://valkey:6379/0", variable["name"]: variable["value"]}
    environ |= {"DRAGOMAN_CLUSTER__KEY": "env:DRAGOMAN_CLUSTER_KEY", "DRAGOMAN_CLUSTER_KEY": "k" * 64}
    loaded = load(DEPLOY / "kubernetes" / "config.toml", tmp_path, environ, tool_specs())
    assert loaded.shared == Path(mount["mountPath"])
    (kustomization,) = read_all(DEPLOY / "kubernetes" / "kustomization.yaml")
    assert f"# components: [{folder.name}]" in (DEPLOY / "kubernetes" / "kustomization.yaml").read_text()
    assert "components" not in kustomization


async def test_the_configuration_of_kubernetes_is_taken(tmp_path: Path) -> None:
    """On a free port: a daemon may run on this machine."""
    text, config, log = (DEPLOY / "kubernetes" / "config.toml").read_text(), tmp_path / "config.toml", tmp_path / "log"
    config.write_text(text.replace("[http]\n", f"[http]\nport = {free_port()}\n"))
    words = ("--config", str(config), "--state", str(tmp_path / "state"), "check")
    with log.open("wb") as said:
        checked = await STEM.fork(words, cwd=ROOT, env=environment(), log=said.fileno())
        async with asyncio.timeout(PATIENCE_S):
            code = await checked.wait()
    assert code == 0, log.read_text()


def test_prometheus_asks_by_allowed_names() -> None:
    allowed = tomllib.loads((DEPLOY / "kubernetes" / "config.toml").read_text())["http"]["allowed_hosts"]
    (prometheus,) = read_all(DEPLOY / "monitoring" / "prometheus.yaml")
    (job,) = prometheus["scrape_configs"]
    assert job["static_configs"] == [{"targets": allowed}]
    (pods, *_) = read_all(DEPLOY / "kubernetes" / "statefulset.yaml")
    names = [f"dragoman-{n}.{pods['spec']['serviceName']}.dragoman:8470" for n in range(pods["spec"]["replicas"])]
    assert allowed == names


# --- monitoring ---------------------------------------------------------------------------------


def alerts() -> list[Any]:
    """Return the alerts."""
    (found,) = read_all(DEPLOY / "monitoring" / "alerts.yaml")
    return [rule for group in found["groups"] for rule in group["rules"]]


def queries() -> list[str]:
    """Return every query of alerts and board."""
    board = json.loads((DEPLOY / "monitoring" / "grafana.json").read_text())
    return [rule["expr"] for rule in alerts()] + [one["expr"] for panel in board["panels"] for one in panel["targets"]]


async def test_the_daemon_has_every_metric(tmp_path: Path) -> None:
    """A real one, with the labels by which queries choose and group."""
    asked = {name for query in queries() for name in re.findall(r"\b(?:dragoman_\w+|up)\b(?=[{\[)\s]|$)", query)}
    assert len(asked) > 15
    async with running(tmp_path) as daemon, aiohttp.request("GET", f"{daemon.url}/metrics") as response:
        text = await response.text()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, flags=re.MULTILINE))
    told = set(kinds) | {f"{name}_bucket" for name, kind in kinds.items() if kind == "histogram"}
    assert asked - OF_PROMETHEUS <= told
    assert all(query.count("{") == query.count("}") and query.count("(") == query.count(")") for query in queries())


def test_every_alert_has_its_section() -> None:
    sections = re.findall(r"^### (Dragoman\w+)$", (DEPLOY / "RUNBOOK.md").read_text(), flags=re.MULTILINE)
    names = [rule["alert"] for rule in alerts()]
    assert len(names) > 10
    assert sections == names
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] in ("page", "ticket") for rule in alerts())


def test_the_image_has_the_extra_of_each_store() -> None:
    """The extras that the image installs are ours, and Redis is among them."""
    (extras,) = re.findall(r'"\.\[([\w,]+)\]"', (DEPLOY / "Dockerfile").read_text())
    known = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "redis" in extras.split(",")
    assert set(extras.split(",")) <= set(known)
