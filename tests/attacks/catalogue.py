"""The attacks: programs that run inside a sandbox and say what they managed.

A program prints ``ESCAPED what`` for each thing that it must not have been able to do. It is held where it prints no
such line, came to an end of an expected kind, and left a sandbox that still serves. Sources: the faults that users of
sandboxes report, and the known ways out of containers; each is named by what it tries.
"""

from dataclasses import dataclass, field

from tests.attacks.places import Told

PRELUDE = """
import ctypes, errno, os, platform, signal, socket, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == 'x86_64'
def escaped(what): print('ESCAPED', what, flush=True)
def call(number, *args):
    ctypes.set_errno(0)
    return libc.syscall(number, *args), ctypes.get_errno()
def tries(what, work):
    try: work()
    except (OSError, PermissionError, ValueError) as error: return error
    escaped(what)
def writes(path, data='1', mode='w'):
    def work():
        with open(path, mode) as file: file.write(data)
    return tries('wrote ' + path, work)
def connects(address, family=socket.AF_INET, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as sock:
        sock.settimeout(2)
        tries('reached %r' % (address,), lambda: sock.connect(address))
"""


@dataclass(frozen=True)
class Attack:
    """One. `limit` is the field of the limits that holds it: a backend without that limit cannot enforce it. `then` is
    run after it in the same sandbox and must print ``alive``. `heavy` ones take seconds."""

    name: str
    script: str
    limit: str | None = None
    timeout_s: float = 20.0
    reasons: tuple[str, ...] = ("exited", "signal", "killed")
    heavy: bool = False
    then: str = "echo alive"
    network: bool = False
    """In a sandbox that may reach one host: ``allowed.test.org``, at the port that is the fourth argument."""
    needs: tuple[str, ...] = field(default_factory=tuple)
    """Backends on which it means something; empty for all."""

    @property
    def program(self) -> str:
        """The whole program."""
        return PRELUDE + self.script

    def escaped(self, told: Told) -> str | None:
        """What it managed; None where it was held."""
        lines = [line for line in told.output.splitlines() if line.startswith("ESCAPED")]
        if lines:
            return "; ".join(line.removeprefix("ESCAPED ") for line in lines[:3])
        if told.reason not in self.reasons:
            return f"ended as {told.reason}, not as {' or '.join(self.reasons)}"
        return None


_TIMEOUT = ("timeout",)
_ANY = ("exited", "signal", "killed", "timeout", "oom", "lost", "output_limit")

SYSTEM = (
    Attack(
        "write to the root file system",
        r"""for d in ('/', '/usr', '/usr/bin', '/etc', '/opt', '/bin', '/lib', '/dev'): writes(d + '/planted')
""",
    ),
    Attack(
        "change what all sandboxes share",
        r"""for root, _, names in os.walk('/opt'):
    for name in names[:20]: writes(os.path.join(root, name), '', 'a')
import site
for folder in site.getsitepackages(): writes(folder + '/sitecustomize.py')
""",
    ),
    Attack(
        "write kernel settings",
        r"""kernel = ('kernel/core_pattern', 'kernel/hostname', 'kernel/modprobe')
for n in ('vm/drop_caches', 'fs/binfmt_misc/register', *kernel): writes('/proc/sys/' + n)
""",
    ),
    Attack(
        "press the magic SysRq key",
        r"""writes('/proc/sysrq-trigger', 'h')
""",
    ),
    Attack(
        "write control groups",
        r"""for root, folders, names in os.walk('/sys/fs/cgroup'):
    for name in names:
        if name in ('cgroup.procs', 'release_agent', 'tasks', 'notify_on_release', 'memory.limit_in_bytes', 'pids.max'):
            writes(os.path.join(root, name), '0')
    if root.count('/') > 5: folders.clear()
""",
    ),
    Attack(
        "write to the kernel's objects",
        r"""for n in ('/sys/kernel/uevent_helper', '/sys/power/state', '/sys/module'): writes(n)
""",
    ),
    Attack(
        "read the kernel's memory and log",
        r"""for n in ('/dev/mem', '/dev/kmem', '/dev/kmsg', '/proc/kcore', '/proc/kmsg'):
    tries('read ' + n, lambda n=n: open(n, 'rb').read(1) or (_ for _ in ()).throw(OSError()))
""",
    ),
    Attack(
        "mount a file system",
        r"""print(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0 and escaped('mounted'))
""",
    ),
    Attack(
        "make a device",
        r"""for major, minor in ((1, 1), (8, 0), (7, 0)):
    def make():
        os.mknod('/tmp/dev', 0o060600, os.makedev(major, minor))
        open('/tmp/dev', 'rb').read(1)
    tries('made a device', make)
""",
    ),
    Attack(
        "enter a user namespace",
        r"""for flag in (0x10000000, 0x10020000, 0x10000000 | 0x40000000):
    if libc.unshare(flag) == 0: escaped('unshare %x' % flag)
""",
        needs=("namespace", "docker"),
    ),
    Attack(
        "gain rights in a namespace of its own",
        r"""if libc.unshare(0x10020000) == 0:
    print(libc.mount(b'none', b'/mnt', b'tmpfs', 0, None) == 0 and writes('/proc/sys/kernel/core_pattern'))
""",
    ),
    Attack(
        "join another namespace",
        r"""for n in ('mnt', 'net', 'pid', 'user'):
    def join():
        if libc.setns(os.open('/proc/1/ns/' + n, os.O_RDONLY), 0) != 0: raise OSError
    tries('joined ' + n, join)
""",
    ),
    Attack(
        "open a file by its handle",
        r"""number = 304 if X86 else 265
result, error = call(number, -100, b'\x08\0\0\0\x01\0\0\0' + b'\x02' + b'\0' * 7, 0)
if result >= 0: escaped('opened')
""",
    ),
    Attack(
        "chroot",
        r"""tries('chroot', lambda: os.chroot('/tmp'))
""",
    ),
    Attack(
        "change the clock, the host's name, or restart it",
        r"""tries('clock', lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()))
tries('name', lambda: socket.sethostname('x'))
if libc.reboot(0) == 0: escaped('reboot')
""",
    ),
    Attack(
        "gain rights through a set-uid program",
        r"""for root in ('/usr/bin', '/usr/sbin', '/usr/lib', '/bin'):
    for name in os.listdir(root):
        path = os.path.join(root, name)
        if os.path.isfile(path) and os.stat(path).st_mode & 0o4000:
            done = subprocess.run([path, '--help'], capture_output=True, timeout=5, stdin=subprocess.DEVNULL)
for program in (['su', '-c', 'id -u'], ['mount', '-t', 'tmpfs', 'x', '/tmp']):
    try: done = subprocess.run(program, capture_output=True, timeout=5, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired): continue
    if done.returncode == 0: escaped(program[0])
""",
    ),
    Attack(
        "hold a capability",
        r"""status = open('/proc/self/status').read()
for line in status.splitlines():
    if line.startswith(('CapEff', 'CapPrm', 'CapAmb')) and int(line.split()[1], 16): escaped(line)
""",
    ),
)

CALLS = tuple(
    Attack(
        f"call {name}",
        f"result, error = call({x86} if X86 else {arm}, {args})\n"
        f"if result >= 0 or error not in (errno.EPERM, errno.ENOSYS, errno.EACCES): escaped('%s %s' % (result, error))",
        needs=("namespace", "docker"),
    )
    for name, x86, arm, args in (
        ("io_uring_setup", 425, 425, "8, 0"),
        ("bpf", 321, 280, "0, 0, 0"),
        ("perf_event_open", 298, 241, "0, 0, -1, -1, 0"),
        ("keyctl", 250, 219, "0, -3, 1"),
        ("userfaultfd", 323, 282, "0"),
        ("process_vm_writev", 311, 271, "1, 0, 0, 0, 0, 0"),
        ("kexec_load", 246, 104, "0, 0, 0, 0"),
        ("init_module", 175, 105, "0, 0, 0"),
    )
)

NETWORK = (
    Attack(
        "reach the cloud's metadata",
        r"""for a in ('169.254.169.254', '169.254.170.2', '100.100.100.200'): connects((a, 80))
connects(('fd00:ec2::254', 80), socket.AF_INET6)
""",
    ),
    Attack(
        "reach the internet",
        r"""for p in (80, 443, 53): connects(('8.8.8.8', p))
connects(('2001:4860:4860::8888', 443), socket.AF_INET6)
""",
    ),
    Attack(
        "send datagrams out",
        r"""with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    tries('sent', lambda: s.sendto(b'x', ('8.8.8.8', 53)))
""",
    ),
    Attack(
        "ask the name service",
        r"""tries('resolved', lambda: socket.gethostbyname('pypi.org'))
""",
    ),
    Attack(
        "reach the host's own servers",
        r"""for port in map(int, sys.argv[1].split(',')): connects(('127.0.0.1', port))
""",
    ),
    Attack(
        "reach the host's abstract sockets",
        r"""with socket.socket(socket.AF_UNIX) as s:
    tries('connected', lambda: s.connect('\0' + sys.argv[2]))
""",
    ),
    Attack(
        "find sockets of the host",
        r"""for root in ('/run', '/var/run', '/tmp', '/var/lib'):
    for folder, _, names in os.walk(root):
        for name in names:
            if name.endswith('.sock'): escaped(os.path.join(folder, name))
""",
    ),
    Attack(
        "make raw and packet sockets",
        r"""for family, kind, proto in ((17, 3, 0x300), (2, 3, 1), (40, 1, 0)):
    tries('socket %d' % family, lambda: socket.socket(family, kind, proto).close())
""",
    ),
)

PROCESSES = (
    Attack(
        "end the first process",
        r"""for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL, signal.SIGSTOP):
    try: os.kill(1, s)
    except OSError: pass
time.sleep(0.3)
""",
    ),
    Attack(
        "end everything it can see",
        r"""try: os.kill(-1, signal.SIGKILL)
except OSError: pass
time.sleep(0.3)
""",
        reasons=_ANY,
    ),
    Attack(
        "trace the first process",
        r"""number = 101 if X86 else 117
result, error = call(number, 16, 1, 0, 0)
if result == 0: escaped('attached')
""",
    ),
    Attack(
        "read what the first process has",
        r"""tries('read its surroundings', lambda: open('/proc/1/environ', 'rb').read())
tries('listed its descriptors', lambda: os.listdir('/proc/1/fd'))
""",
        needs=("docker",),
    ),
    Attack(
        "read the memory of the first process",
        r"""start = int(open('/proc/1/maps').readline().split('-')[0] or '0', 16)
def look():
    with open('/proc/1/mem', 'rb', 0) as file:
        file.seek(start)
        if not file.read(16): raise OSError
tries('read it', look)
""",
        needs=("docker", "gvisor"),
    ),
    Attack(
        "replace the first program",
        r"""writes('/proc/1/exe', 'x')
writes('/proc/self/exe', 'x')
""",
    ),
    Attack(
        "see the host's processes",
        r"""seen = [n for n in os.listdir('/proc') if n.isdigit()]
if len(seen) > 12: escaped('%d processes' % len(seen))
""",
    ),
    Attack(
        "find the host's secrets in its surroundings",
        r"""for n in os.listdir('/proc'):
    if n.isdigit():
        try: data = open('/proc/%s/environ' % n, 'rb').read()
        except OSError: continue
        if sys.argv[3].encode() in data: escaped('in the environment of ' + n)
if 'LONGHAUL_' in ' '.join(os.environ): escaped('in its own environment')
""",
    ),
    Attack(
        "find the files of others",
        r"""for root in ('/root', '/home', '/proc/1/root/root'):
    try: found = [n for n in os.listdir(root) if not os.path.isdir(os.path.join(root, n))]
    except OSError: continue
    if found: escaped('found ' + root + '/' + found[0])
for root in ('/var/lib/longhaul', '/var/lib/docker', '/proc/1/root/var/lib/longhaul'):
    tries('listed ' + root, lambda: os.listdir(root))
""",
    ),
    Attack(
        "outlive its command",
        r"""script = 'import os,time\nos.setsid()\nif os.fork(): os._exit(0)\nos.setsid()\ntime.sleep(4711.25)'
null = subprocess.DEVNULL
for _ in range(5): subprocess.Popen([sys.executable, '-c', script], stdin=null, stdout=null, stderr=null)
time.sleep(0.5)
""",
        then="for p in /proc/[0-9]*; do case $(readlink $p/exe) in *python*) echo left;; esac; done; echo alive",
    ),
    Attack(
        "outlive its timeout",
        r"""signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(4712.5)
""",
        timeout_s=1.5,
        reasons=("timeout",),
        heavy=True,
    ),
    Attack(
        "wait for input for ever",
        r"""data = sys.stdin.read()
if data: escaped('was given input')
""",
    ),
    Attack(
        "keep the output open",
        r"""if os.fork() == 0:
    os.setsid()
    time.sleep(4713)
print('the first one ends')
""",
    ),
    Attack(
        "leave a thousand zombies",
        r"""for _ in range(100):
    if os.fork() == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)
time.sleep(0.2)
""",
    ),
    Attack(
        "type into the terminal of the host",
        r"""import fcntl
for fd in (0, 1, 2):
    tries('TIOCSTI', lambda: fcntl.ioctl(fd, 0x5412, b'x'))
tries('opened a terminal', lambda: os.open('/dev/tty', os.O_RDWR))
""",
    ),
)

EXHAUSTION = (
    Attack(
        "fork without end",
        r"""def bomb():
    while True:
        try: os.fork()
        except OSError: time.sleep(0.01)
bomb()
""",
        limit="pids",
        timeout_s=3,
        reasons=("timeout", "killed", "lost"),
        heavy=True,
    ),
    Attack(
        "threads without end",
        r"""made = 0
try:
    while made < 20000:
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
        made += 1
except RuntimeError: pass
if made > 4096: escaped('%d threads' % made)
os._exit(0)
""",
        limit="pids",
        heavy=True,
    ),
    Attack(
        "descriptors without end",
        r"""held = []
try:
    while len(held) < 100000: held.append(os.open('/dev/null', os.O_RDONLY))
except OSError: pass
if len(held) > 5000: escaped('%d descriptors' % len(held))
""",
    ),
    Attack(
        "memory without end",
        r"""held = []
for _ in range(90):
    held.append(bytearray(os.urandom(1 << 20)) * 10)
escaped('900 MB')
""",
        limit="memory_mb",
        reasons=("oom", "signal", "killed", "exited"),
        heavy=True,
    ),
    Attack(
        "fill the disk",
        r"""size = 0
try:
    with open('/workspace/big', 'wb', buffering=0) as f:
        for _ in range(400): size += f.write(bytes(1 << 20))
except OSError: pass
if size > 128 << 20: escaped('%d MB' % (size >> 20))
os.remove('/workspace/big')
""",
        limit="disk_mb",
        heavy=True,
    ),
    Attack(
        "fill the disk with empty files",
        r"""made = 0
os.mkdir('/workspace/many')
try:
    for made in range(40000): os.mknod('/workspace/many/%d' % made)
except OSError: pass
if made > 30000: escaped('%d files' % made)
import shutil; shutil.rmtree('/workspace/many')
""",
        limit="disk_mb",
        heavy=True,
    ),
    Attack(
        "fill the shared memory",
        r"""size = 0
try:
    with open('/dev/shm/big', 'wb', buffering=0) as f:
        for _ in range(200): size += f.write(bytes(1 << 20))
except OSError: pass
if size > 80 << 20: escaped('%d MB' % (size >> 20))
try: os.remove('/dev/shm/big')
except OSError: pass
""",
    ),
    Attack(
        "take more processor than it may",
        r"""def burn():
    end = time.monotonic() + 4
    while time.monotonic() < end: pass
pids = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        burn(); os._exit(0)
    pids.append(pid)
used = 0.0
for pid in pids:
    _, _, usage = os.wait4(pid, 0)
    used += usage.ru_utime + usage.ru_stime
if used > 4 * 0.9: escaped('%.1f s of processor in 4 s' % used)
""",
        limit="cpu",
        heavy=True,
    ),
    Attack(
        "a gigabyte of output",
        r"""block = b'x' * (1 << 20)
for _ in range(1024): sys.stdout.buffer.write(block)
""",
        timeout_s=60,
        reasons=("exited", "output_limit"),
        heavy=True,
    ),
)

FILES = (
    Attack(
        "a way out through links",
        r"""for n, to in (('link', '/etc'), ('up', '../../../..'), ('proc', '/proc/1/root')):
    os.symlink(to, '/workspace/' + n)
for n in ('link/planted', 'up/planted', 'proc/planted'): writes('/workspace/' + n)
""",
    ),
)

ATTACKS = (*SYSTEM, *CALLS, *NETWORK, *PROCESSES, *EXHAUSTION, *FILES)
