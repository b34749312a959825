"""The filter, run by a small interpreter of classic BPF."""

import errno
import struct

import pytest

from services.sandbox import seccomp

ALLOW, KILL = 0x7FFF0000, 0x80000000


def run(program: bytes, number: int, arch: int, arg0: int = 0) -> int:
    """What the filter answers to a call."""
    data = struct.pack("<iIQQQQQQQ", number, arch, 0, arg0, 0, 0, 0, 0, 0)
    code = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    accumulator = at = 0
    while True:
        op, jump_true, jump_false, k = code[at]
        at += 1
        if op == seccomp.LD_W:
            accumulator = struct.unpack_from("<I", data, k)[0]
        elif op == seccomp.RET:
            return int(k)
        else:
            hit = {seccomp.JEQ: accumulator == k, seccomp.JGE: accumulator >= k, seccomp.JSET: bool(accumulator & k)}[
                op
            ]
            at += jump_true if hit else jump_false


def refused(code: int) -> int:
    return 0x00050000 | code


@pytest.mark.parametrize("name", sorted(seccomp.MACHINES))
def test_what_is_allowed_and_what_is_not(name: str) -> None:
    machine, program = seccomp.MACHINES[name], seccomp.program(name)

    def answer(number: int, arg0: int = 0) -> int:
        return run(program, number, machine.audit, arg0)

    denied = set(machine.denied.values())
    special = {machine.clone, machine.clone3, machine.socket}
    for number in set(range(500)) - special:
        assert answer(number) == (refused(errno.EPERM) if number in denied else ALLOW), number
    assert answer(machine.clone3) == refused(errno.ENOSYS)
    assert answer(machine.clone, 0x01200011) == ALLOW  # fork, as the C library asks for it
    assert answer(machine.clone, 0x003D0F00) == ALLOW  # a thread
    for flag in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert answer(machine.clone, flag | 17) == refused(errno.EPERM), hex(flag)
    assert [answer(machine.socket, family) for family in (1, 2, 10, 16)] == [ALLOW] * 4
    assert {answer(machine.socket, family) for family in (0, 17, 38, 40, 1 << 31)} == {refused(errno.EAFNOSUPPORT)}


def test_other_architectures_and_abis_get_nothing() -> None:
    x86 = seccomp.MACHINES["x86_64"]
    assert run(seccomp.program("x86_64"), 0, 0x40000003) == KILL  # i386
    assert run(seccomp.program("x86_64"), 0x40000000 | 101, x86.audit) == refused(errno.ENOSYS)  # x32


def test_an_unknown_machine_has_no_filter_and_so_no_sandbox() -> None:
    with pytest.raises(KeyError):
        seccomp.program("sparc")
