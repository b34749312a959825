"""What runs inside sees and reaches nothing but its own workspace."""

import asyncio
import os
import socket
import sys
import threading
from pathlib import Path

from agents.contracts.sandbox import Trait
from services.sandbox.client import RunnerClient
from services.sandbox.supervised.launch import LAST
from tests.contract.sandbox.runner import Box, RunnerProcess, ask, make_box, owner, sleeping, until


async def test_only_loopback_and_nothing_behind_it(box: Box) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: server.settimeout(5), daemon=True).start()
        port = server.getsockname()[1]
        script = f"""
import socket
for address in [("127.0.0.1", {port}), ("169.254.169.254", 80), ("8.8.8.8", 53)]:
    try:
        socket.create_connection(address, timeout=2); print("reached", address)
    except OSError as error: print(type(error).__name__, error.errno)
"""
        await box.client.exec(box.id, ask(f"cat > probe.py <<'EOF'{script}EOF"))
        out = await box.out("python3 probe.py; sed 1,2d /proc/net/dev | cut -d: -f1")
    assert "reached" not in out
    assert out.split()[-1] == "lo"


async def test_abstract_sockets_of_the_host_are_out_of_reach(box: Box) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0longhaul-test-socket")
        server.listen()
        out = await box.out(
            'python3 -c "import socket; s = socket.socket(socket.AF_UNIX); '
            "print(s.connect_ex('\\0longhaul-test-socket'))\""
        )
    assert out == "111\n"


async def test_files_of_the_host_are_not_there(box: Box, runner: RunnerProcess) -> None:
    paths = "/root/.ssh /root/.bashrc /var /etc/shadow /home /run /mnt /boot"
    assert await box.out(f"for f in {paths}; do test -e $f && echo $f; done; true") == ""
    shown = await box.out("cut -d' ' -f2 /proc/self/mounts | grep -v ^/proc | grep -v ^/dev | sort")
    expected = {
        "/",
        "/usr",
        "/etc",
        "/etc/alternatives",
        "/etc/ssl/certs",
        "/tmp",
        "/workspace",
        "/.longhaul/supervisor",
    }
    engines = {f"/etc/{name}" for name in ("passwd", "group", "hosts", "hostname", "resolv.conf")} | {"/.longhaul/last"}
    shown_of_sys = {path for path in shown.split() if path.startswith("/sys")}
    more = {"/opt/longhaul/venv", sys.base_prefix} | (engines if runner.backend != "namespace" else set())
    assert {path for path in shown.split() if path not in expected} - shown_of_sys <= more
    if Trait.OWN_KERNEL not in (await box.client.capabilities()).traits:
        assert await box.out("find /sys -type f -readable 2>/dev/null | grep -v ^/sys/fs/cgroup/; true") == ""


async def test_the_journal_and_other_sandboxes_are_not_there(
    box: Box, client: RunnerClient, runner: RunnerProcess
) -> None:
    other = await make_box(client)
    await client.exec(other.id, ask("echo secret-of-the-other > s"))
    names = " -o -name ".join(["intent.json", "started.json", "exit.json", "fences.json", other.id])
    out = await box.out(
        f"cat {runner.data}/lock 2>&1; find / /workspace /tmp/home /opt -xdev \\( -name {names} \\) 2>/dev/null; true"
    )
    assert len(out.splitlines()) == 1
    assert "No such file" in out
    await client.destroy(other.id)


async def test_only_its_own_processes_are_seen_or_signalled(box: Box, client: RunnerClient) -> None:
    other = await make_box(client)
    victim = asyncio.create_task(client.exec(other.id, ask("sleep 76543.5")))
    await until(lambda: sleeping("76543.5"))
    status = await box.run(
        "set -- /proc/[0-9]*; echo $#; for p in $(seq 2 400); do kill -9 $p 2>/dev/null; done; kill -9 -1; true"
    )
    assert int(status.output.split()[0]) < 8
    assert sleeping("76543.5")
    [pid] = sleeping("76543.5")
    await box.run(f"kill -9 {pid}")
    assert sleeping("76543.5") == [pid]
    await client.kill_all(other.id, owner())
    await victim
    await client.destroy(other.id)


async def test_no_privilege_and_no_way_back(box: Box) -> None:
    out = await box.out("grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; id -u")
    fields = dict(line.split(":\t") for line in out.splitlines() if ":" in line)
    assert int(fields.pop("CapBnd"), 16) in await of_the_first(box)  # of no use: there is no way to gain any
    if Trait.OWN_KERNEL not in (await box.client.capabilities()).traits:
        assert fields.pop("NoNewPrivs") == "1"  # gVisor does not show it
    assert fields == {"CapEff": "0" * 16, "Seccomp": "2"}
    for command in (
        "unshare -U true",
        "unshare -m true",
        "mount -t tmpfs x /mnt",
        "nsenter -t 1 -m true",
        "chroot / true",
    ):
        assert (await box.run(command)).exit_code != 0, command


async def test_system_calls_that_nothing_needs_are_closed(box: Box) -> None:
    script = """
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == 'x86_64'
calls = {'io_uring_setup': 425, 'bpf': 321 if x86 else 280, 'perf_event_open': 298 if x86 else 241,
         'keyctl': 250 if x86 else 219, 'userfaultfd': 323 if x86 else 282, 'ptrace': 101 if x86 else 117,
         'mount': 165 if x86 else 40, 'setns': 308 if x86 else 268, 'unshare': 272 if x86 else 97,
         'open_tree': 428, 'fsopen': 430, 'kexec_load': 246 if x86 else 104}
for name, number in calls.items():
    libc.syscall(number, 0, 0, 0, 0, 0, 0)
    print(name, errno.errorcode[ctypes.get_errno()])
libc.syscall(435, 0, 0); print('clone3', errno.errorcode[ctypes.get_errno()])
libc.syscall(56 if x86 else 220, 0x10000000 | 17, 0, 0, 0, 0); print('clone', errno.errorcode[ctypes.get_errno()])
libc.socket(40, 1, 0); print('vsock', errno.errorcode[ctypes.get_errno()])
"""
    out = await box.out(f"cat > calls.py <<'EOF'{script}EOF\npython3 calls.py")
    told = dict(line.split() for line in out.splitlines())
    assert told.pop("clone3") == "ENOSYS"
    assert told.pop("vsock") in ("EAFNOSUPPORT", "EPERM")
    assert set(told.values()) == {"EPERM"}, told


async def test_nothing_outside_the_workspace_can_be_written(box: Box) -> None:
    out = await box.out(
        "for f in /x /usr/x /etc/x /dev/x /opt/longhaul/venv/x /proc/sys/vm/drop_caches /proc/sysrq-trigger; do "
        "(echo 1 > $f) 2>/dev/null && echo wrote $f; done; touch /tmp/x ~/x /dev/shm/x x && echo ok"
    )
    assert out == "ok\n"


async def test_shared_memory_is_bounded(box: Box) -> None:
    assert (await box.out("df -m /dev/shm | awk 'NR>1 {print $2}'")).strip() == "64"


async def test_no_descriptor_of_ours_is_inherited(box: Box, runner: RunnerProcess) -> None:
    listing = "python3 -c 'import os; print(*sorted(os.listdir(\"/proc/self/fd\")))'"
    assert await box.out(listing) == "0 1 2 3\n"  # 3 is the listing's own
    # not in a pipe: the other end, still being loaded, would have its libraries open
    links = await box.out('links=$(readlink /proc/[0-9]*/fd/*); echo "$links" | sort -u')
    allowed: tuple[str, ...] = (
        "/dev/null",
        "pipe:",
        "anon_inode:[eventfd]",
        "anon_inode:[signalfd]",
        "/proc/",
        "socket:",
    )
    if Trait.OWN_KERNEL in (await box.client.capabilities()).traits:  # it shows the supervisor's to everybody
        allowed += ("host:", "/.longhaul/last", "/workspace", "anon_inode:[eventpoll]")
        assert "denied" in (await box.run("echo x >> /.longhaul/last")).output
        assert (runner.home(box.id).root / LAST).stat().st_size == 0
    assert all(link.startswith(allowed) for link in links.splitlines()), links


async def test_the_first_process_is_confined_too(box: Box) -> None:
    told = dict(
        line.split(":\t") for line in (await box.out("grep -E '^(Seccomp|CapEff):' /proc/1/status")).splitlines()
    )
    assert int(told["CapEff"], 16) in await of_the_first(box)
    assert told["Seccomp"] == "2"


async def of_the_first(box: Box) -> tuple[int, ...]:
    """The capabilities that a sandbox's first process may have: none, or KILL, SETGID and SETUID where it is another
    user than its commands."""
    return (0xE0,) if Trait.SUPERVISOR_APART in (await box.client.capabilities()).traits else (0,)


async def test_a_fork_bomb_is_contained(box: Box, client: RunnerClient) -> None:
    other = await make_box(client)
    bomb = """python3 -c '
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
'"""
    bombing = asyncio.create_task(box.run(bomb, timeout_s=2))
    await asyncio.sleep(1.0)
    assert await other.out("echo alive") == "alive\n"
    status = await bombing
    if "pids" in (await client.capabilities()).limits or status.reason != "lost":
        assert status.reason == "timeout"
        assert status.duration_ms < 8_000
    assert await box.out("echo again") == "again\n"
    await client.destroy(other.id)


async def test_the_host_holds_nothing_of_a_sandbox_in_the_open(box: Box, runner: RunnerProcess) -> None:
    home = runner.home(box.id)
    assert runner.data.joinpath("sandboxes").stat().st_mode & 0o077 == 0
    expected = home.meta.uid if home.meta.uid is not None else os.stat(home.root).st_uid
    assert home.workspace.stat().st_uid == expected
    if os.geteuid() == 0 and not runner.switch:
        assert home.meta.uid is not None
        assert home.meta.uid >= 200_000


async def test_root_gives_each_sandbox_a_user_of_its_own(client: RunnerClient, runner: RunnerProcess) -> None:
    boxes = [await make_box(client) for _ in range(3)]
    uids = [runner.home(box.id).meta.uid for box in boxes]
    assert len(set(uids)) == (1 if uids[0] is None else 3)
    for box in boxes:
        await client.destroy(box.id)


async def test_python_and_the_usual_tools_are_there(box: Box) -> None:
    out = await box.out(
        "python -c 'import sys; print(sys.prefix)'; which python3 git make sh; git init -q r && echo made"
    )
    assert out.splitlines()[0] == "/opt/longhaul/venv"
    assert out.endswith("made\n")


async def test_the_templates_packages_work(full_template: Path, box: Box) -> None:
    script = (
        "import numpy, pandas, trimesh, matplotlib; matplotlib.use('Agg'); import matplotlib.pyplot as p; "
        "p.plot([1, 2]); p.savefig('a.png'); print(numpy.ones(3).sum(), trimesh.creation.box().volume)"
    )
    assert await box.out(f'python -c "{script}"') == "3.0 1.0\n"
    status = await box.run("printf 'def test_a():\\n    assert 1 + 1 == 2\\n' > test_a.py; pytest -q 2>&1")
    assert "1 passed" in status.output


async def test_tmp_and_home_outlive_a_command_and_are_not_copied(box: Box, client: RunnerClient) -> None:
    await box.out("echo kept > /tmp/note; echo mine > ~/note; touch w")
    assert await box.out("cat /tmp/note ~/note") == "kept\nmine\n"
    copy = await make_box(client, copy_of=box.id)
    assert await copy.out("cd /tmp; echo *; cd ~; echo *; cd /workspace; echo *") == "home\nmatplotlib\nw\n"
    await client.destroy(copy.id)
