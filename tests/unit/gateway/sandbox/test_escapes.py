"""Corpus of attempts to leave a sandbox, in each mode, with real programs: 0 of them read, write or reach anything.

An attempt succeeds when a secret of the host is printed, a file outside the workspace changed, or an inner server met
somebody. Programs run as the daemon's own user, root where the tests do; none would harm the machine if it succeeded.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.tools import NetworkMode, SandboxMode
from gateway.egress import Egress
from gateway.sandbox import Confinement, Containment, ProcessLimits, run_contained

SECRET = "c4nary-of-the-host"
ESCAPED = "dragoman-escape"
ABSTRACT = f"{ESCAPED}-{os.getpid()}"
WITHIN = {
    "basic": Confinement(mode=SandboxMode.BASIC),
    "full": Confinement(mode=SandboxMode.FULL),
    "full-read-only": Confinement(mode=SandboxMode.FULL, read_only=True),
    "full-public": Confinement(mode=SandboxMode.FULL, network=NetworkMode.PUBLIC),
}

# OUTSIDE is a folder beside the workspace with the files `secret` and `written`, PORT an inner server's, PID the
# daemon's, SOCKET a socket of the host in OUTSIDE. Each line is one attempt.
READS = r"""
cat OUTSIDE/secret
cat ../outside/secret
cat /proc/1/root/OUTSIDE/secret
cat /proc/self/root/OUTSIDE/secret
cat /proc/PID/root/OUTSIDE/secret
cat /proc/*/root/OUTSIDE/secret
cat /proc/PID/environ | tr '\0' '\n' | grep -a c4nary
cat /proc/*/environ | tr '\0' '\n' | grep -a c4nary
cat /proc/*/cwd/../outside/secret
for fd in /proc/self/fd/* /proc/1/fd/*; do cat $fd/../outside/secret; timeout 0.1 cat $fd; done </dev/null
ln -s OUTSIDE/secret link; cat link
ln OUTSIDE/secret hard; cat hard
mkdir m; mount --bind OUTSIDE m; cat m/secret
mkdir m; mount -t proc proc m; cat m/PID/root/OUTSIDE/secret
mount -o remount,rw /; mount --move / m; cat OUTSIDE/secret
umount -l WORKSPACE; ls OUTSIDE; cat OUTSIDE/secret
unshare -Urmp --fork sh -c 'mount -t proc proc /proc; cat /proc/1/root/OUTSIDE/secret'
unshare -rm sh -c 'mkdir /tmp/r; pivot_root /tmp/r /tmp/r; cat /OUTSIDE/secret'
nsenter -t 1 -a cat OUTSIDE/secret
nsenter -t PID -a cat OUTSIDE/secret
chroot /proc/1/root cat OUTSIDE/secret
chroot /proc/PID/root cat OUTSIDE/secret
mkdir -p j; chroot j /bin/true; cd /proc/1/cwd/../..; cat outside/secret
mknod d b 8 0; dd if=d bs=1M count=4 | grep -a c4nary
mknod d b 259 0; dd if=d bs=1M count=4 | grep -a c4nary
dd if=/dev/mem bs=1M count=1 | grep -a c4nary
dd if=/proc/kcore bs=1M count=1 | grep -a c4nary
debugfs -R 'cat OUTSIDE/secret' /dev/sda1
dd if=/proc/PID/mem bs=4096 count=1 | strings
python3 -c "import ctypes; c = ctypes.CDLL(None); c.ptrace(16, PID, 0, 0)"; cat OUTSIDE/secret
python3 -c "import ctypes, os; ctypes.CDLL(None).setns(os.open('/proc/PID/ns/mnt', 0), 0)"; cat OUTSIDE/secret
python3 -c "import ctypes; c=ctypes.CDLL(None); print(c.syscall(304, -1, 0, 0))"; cat OUTSIDE/secret
python3 -c "import ctypes,os; c=ctypes.CDLL(None); pid=c.syscall(434, PID, 0); print(c.syscall(438, pid, 0, 0))"
python3 -c "import os; [print(os.read(fd, 4096)) for fd in range(3, 30) if os.path.exists(f'/proc/self/fd/{fd}')]"
gdb -p PID -batch -ex 'shell cat OUTSIDE/secret'
cat ~/secret /root/secret /home/*/secret
find / -path /usr -prune -o -path /proc -prune -o -name secret -exec cat {} +
grep -rs c4nary-of-the-host /tmp /home /root /var /run /opt /srv
tar c --exclude=usr --exclude=proc / | grep -a c4nary-of-the-host
keyctl show; keyctl print %user:dragoman-test
cat /run/secrets/* /var/run/secrets/kubernetes.io/serviceaccount/token OUTSIDE/secret
LD_PRELOAD=OUTSIDE/secret true; cat OUTSIDE/secret
sudo -n cat OUTSIDE/secret; su -c 'cat OUTSIDE/secret'; pkexec cat OUTSIDE/secret
at -f OUTSIDE/secret now; crontab OUTSIDE/secret; crontab -l
systemd-run --pipe cat OUTSIDE/secret
busctl --address=unix:path=/run/dbus/system_bus_socket
docker run -v /:/h alpine cat /h/OUTSIDE/secret
curl -s --unix-socket /var/run/docker.sock http://x/v1.41/containers/json
""".strip().splitlines()
WRITES = r"""
echo x > OUTSIDE/written
echo x > ../outside/written
echo x > /proc/1/root/OUTSIDE/written
echo x > /proc/PID/root/OUTSIDE/written
ln -s OUTSIDE/written link; echo x > link
ln -s OUTSIDE d; echo x > d/written; rm -rf d/*
rm -rf OUTSIDE; rm -rf ../outside
mv OUTSIDE/written .; mv ../outside ./mine
mount -o remount,rw /usr; echo x > /usr/dragoman-escape
echo x > /usr/dragoman-escape; echo x > /etc/dragoman-escape; echo x > /bin/dragoman-escape
mkdir c; mount -t cgroup2 none c && mkdir c/dragoman-escape && echo CANARY
mkdir c; mount -t tmpfs none c && echo CANARY
kill -0 PID && cat /proc/PID/cmdline | grep -a pytest && echo CANARY
python3 -c "import ctypes; ctypes.CDLL(None).ptrace(16, PID, 0, 0) == 0 and print('CANARY')"
python3 -c "import fcntl, termios; [fcntl.ioctl(fd, termios.TIOCSTI, c) for fd in (0, 1, 2) for c in b'id\n']"
python3 -c "import fcntl, os, termios as t; fd = os.open('/dev/tty', 2); fcntl.ioctl(fd, t.TIOCSTI, b'i')"
python3 -c "import fcntl, os; [fcntl.ioctl(os.open(f'/dev/tty{n}', 2), 0x5412, b'x') for n in range(4)]"
chmod 777 OUTSIDE/written; chown 0 OUTSIDE/written; touch -d yesterday OUTSIDE/written
setfattr -n user.x -v y OUTSIDE/written; truncate -s 0 OUTSIDE/written
git -C OUTSIDE init; git config --global core.pager x; git --git-dir=OUTSIDE/.git init
echo -1000 > /proc/self/oom_score_adj && echo CANARY
losetup -f OUTSIDE/written && echo CANARY
""".strip().splitlines()
REACHES = r"""
exec 3<>/dev/tcp/127.0.0.1/PORT; echo x >&3; cat <&3
exec 3<>/dev/tcp/localhost/PORT; echo x >&3
exec 3<>/dev/udp/127.0.0.1/PORT; echo x >&3
python3 -c "import socket; socket.create_connection(('::1', PORT), 2)"
python3 -c "import socket; socket.create_connection(('ADDRESS', PORT), 2)"
python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.connect('SOCKET'); s.send(b'x')"
python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.connect('\0ABSTRACT'); s.send(b'x')"
python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/proc/PID/root/SOCKET'); s.send(b'x')"
cd /proc/PID/cwd && python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.connect('../SOCKET')"
ip link add v0 type veth peer name v1; ip link set v1 netns PID; ip addr; exec 3<>/dev/tcp/ADDRESS/PORT
ip link set lo down; ip route add default dev lo; exec 3<>/dev/tcp/ADDRESS/PORT
nsenter --net=/proc/PID/ns/net bash -c 'exec 3<>/dev/tcp/127.0.0.1/PORT'
nsenter --net=/proc/1/ns/net bash -c 'exec 3<>/dev/tcp/127.0.0.1/PORT'
python3 -c "import ctypes, os; ctypes.CDLL(None).setns(os.open('/proc/PID/ns/net', 0), 0)"; : >/dev/tcp/localhost/PORT
python3 -c "import socket; s=socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('eth0',0)); s.send(b'x'*60)"
python3 -c "import socket; s=socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); s.sendto(b'x', ('127.0.0.1', 0))"
python3 -c "import socket; s=socket.socket(40, socket.SOCK_STREAM); s.connect((2, PORT))"
curl -s -m 2 --noproxy '*' http://127.0.0.1:PORT/; curl -s -m 2 http://127.0.0.1:PORT/; curl -s -m 2 http://ADDRESS:PORT/
curl -s -m 2 -x http://127.0.0.1:PORT http://example.org/; wget -q -T 2 -O - http://localhost:PORT/
curl -s -m 2 http://169.254.169.254/latest/meta-data/; curl -s -m 2 http://[::ffff:127.0.0.1]:PORT/
getent hosts example.org; ping -c 1 -W 1 127.0.0.1; ssh -o ConnectTimeout=1 -p PORT 127.0.0.1
unshare -n bash -c 'exec 3<>/dev/tcp/127.0.0.1/PORT'
""".strip().splitlines()


class Printed:
    """`Output` that stores everything."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


@contextmanager
def meeting_point(folder: Path) -> Generator[tuple[int, list[socket.socket]]]:
    """Listen on TCP, on a path and on an abstract name, all of the host; yield the port and the sockets."""
    kinds: list[tuple[socket.AddressFamily, Any]] = [
        (socket.AF_INET, ("0.0.0.0", 0)),
        (socket.AF_UNIX, str(folder / "s")),
        (socket.AF_UNIX, f"\0{ABSTRACT}"),
    ]
    listening: list[socket.socket] = []
    for family, address in kinds:
        one = socket.socket(family, socket.SOCK_STREAM)
        listening.append(one)
        one.bind(address)
        one.listen(8)
        one.setblocking(False)
    try:
        yield listening[0].getsockname()[1], listening
    finally:
        for one in listening:
            one.close()


def met(listening: list[socket.socket]) -> int:
    """Return how many connections were made."""
    found = 0
    for one in listening:
        with suppress(BlockingIOError):
            while True:
                one.accept()[0].close()
                found += 1
    return found


def own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with suppress(OSError):
            probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0]).replace("0.0.0.0", "127.0.0.1")


def listed(folder: Path) -> dict[str, bytes | None]:
    """Return every file outside the workspace with its content, and what else is there."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def test_the_corpus_is_large_enough() -> None:
    assert len(READS) + len(WRITES) + len(REACHES) >= 85


@pytest.mark.parametrize("corpus", ["reads", "writes", "reaches"])
@pytest.mark.parametrize("way", WITHIN)
@pytest.mark.sampled(3)
async def test_no_attempt_leaves_the_sandbox(
    tmp_path: Path, machine: Containment, way: str, corpus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_CANARY", SECRET)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text(SECRET)
    (outside / "written").write_text("as it was")
    attempts = {"reads": READS, "writes": WRITES, "reaches": REACHES}[corpus]
    limit = asyncio.Semaphore(2)
    successes: list[str] = []
    with meeting_point(outside) as (port, listening):
        before = listed(outside)
        words = {"OUTSIDE": str(outside), "PORT": str(port), "PID": str(os.getpid()), "ADDRESS": own_address(),
                 "SOCKET": str(outside / "s"), "ABSTRACT": ABSTRACT, "CANARY": SECRET}  # fmt: skip

        async def attempt(n: int, script: str) -> None:
            workspace = tmp_path / f"w{n}"
            workspace.mkdir()
            for word, value in {**words, "WORKSPACE": str(workspace)}.items():
                script = script.replace(word, value)
            printed = Printed()
            async with limit, asyncio.timeout(30):
                await run_contained(
                    ["timeout", "-k", "1", "5", "/bin/bash", "--noprofile", "--norc", "-c", f"{script}\nexit 0"],
                    within=WITHIN[way], workspace=workspace, cwd=workspace, output=printed, containment=machine,
                    limits=ProcessLimits(), serve=lambda sock, address: Egress().serve(sock, hosts=(), address=address),
                )  # fmt: skip
            if SECRET.encode() in printed.data:
                successes.append(f"read: {script}")
            if met(listening):
                successes.append(f"reached: {script}")

        async with asyncio.TaskGroup() as group:
            for n, script in enumerate(attempts):
                group.create_task(attempt(n, script))
        assert successes == []
        assert listed(outside) == before
    assert [root for root in ("/usr", "/etc", "/bin") if ESCAPED in os.listdir(root)] == []
