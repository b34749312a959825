"""The system calls a sandbox may not make, as a classic BPF program assembled in Python.

Anything not named is allowed; what is named has no use in a build or a test and a record of kernel bugs, or would make
new namespaces. ``clone3`` answers ENOSYS because its flags are behind a pointer; C libraries then use ``clone``.
"""

import errno
import platform
import struct
from typing import NamedTuple

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
LD_W, JEQ, JGE, JSET, RET = 0x20, 0x15, 0x35, 0x45, 0x06
NR, ARCH, ARG0 = 0, 4, 16
NEW_NAMESPACES = 0x7E020000  # NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET
FAMILIES = (1, 2, 10, 16)  # unix, inet, inet6, netlink: not vsock, which no network namespace confines


class Machine(NamedTuple):
    """One architecture's numbers. `x32` is the first number of a second ABI to refuse, if there is one."""

    audit: int
    x32: int | None
    clone: int
    clone3: int
    socket: int
    denied: dict[str, int]


# Since 424 the numbers are the same everywhere.
_COMMON = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_getfd": 438, "mount_setattr": 442,
    "quotactl_fd": 443,
}  # fmt: skip
_X86_64 = {
    "ptrace": 101, "syslog": 103, "modify_ldt": 154, "pivot_root": 155, "adjtimex": 159, "chroot": 161, "acct": 163,
    "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "iopl": 172,
    "ioperm": 173, "init_module": 175, "delete_module": 176, "quotactl": 179, "lookup_dcookie": 212,
    "clock_settime": 227, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272,
    "perf_event_open": 298, "fanotify_init": 300, "name_to_handle_at": 303, "open_by_handle_at": 304,
    "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
    "finit_module": 313, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
}  # fmt: skip
_AARCH64 = {
    "lookup_dcookie": 18, "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "quotactl": 60, "acct": 89,
    "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106, "clock_settime": 112, "syslog": 116,
    "ptrace": 117, "reboot": 142, "settimeofday": 170, "adjtimex": 171, "add_key": 217, "request_key": 218,
    "keyctl": 219, "swapon": 224, "swapoff": 225, "perf_event_open": 241, "fanotify_init": 262,
    "name_to_handle_at": 264, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268, "process_vm_readv": 270,
    "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "bpf": 280, "userfaultfd": 282,
    "kexec_file_load": 294,
}  # fmt: skip
MACHINES = {
    "x86_64": Machine(0xC000003E, 0x40000000, 56, 435, 41, _X86_64 | _COMMON),
    "aarch64": Machine(0xC00000B7, None, 220, 435, 198, _AARCH64 | _COMMON),
}


def _ins(code: int, k: int, jt: int = 0, jf: int = 0) -> bytes:
    return struct.pack("<HBBI", code, jt, jf, k)


def _deny(number: int, error: int) -> bytes:
    return _ins(JEQ, number, 0, 1) + _ins(RET, ERRNO | error)


def program(machine: str | None = None) -> bytes:
    """The filter for `machine` (this host's where None).

    Raises:
        KeyError: the architecture is not known; there must be no sandbox then.
    """
    arch = MACHINES[machine or platform.machine()]
    code = _ins(LD_W, ARCH) + _ins(JEQ, arch.audit, 1, 0) + _ins(RET, KILL) + _ins(LD_W, NR)
    if arch.x32 is not None:
        code += _ins(JGE, arch.x32, 0, 1) + _ins(RET, ERRNO | errno.ENOSYS)
    for number in sorted(arch.denied.values()):
        code += _deny(number, errno.EPERM)
    code += _deny(arch.clone3, errno.ENOSYS)
    code += _ins(JEQ, arch.clone, 0, 4)
    code += _ins(LD_W, ARG0) + _ins(JSET, NEW_NAMESPACES, 0, 1) + _ins(RET, ERRNO | errno.EPERM) + _ins(RET, ALLOW)
    code += _ins(JEQ, arch.socket, 0, len(FAMILIES) + 2) + _ins(LD_W, ARG0)
    for left, family in zip(range(len(FAMILIES), 0, -1), FAMILIES, strict=True):
        code += _ins(JEQ, family, left, 0)
    return code + _ins(RET, ERRNO | errno.EAFNOSUPPORT) + _ins(RET, ALLOW)
