"""Docker's form of the system-call filter: the same table as the namespace backend's, so that both hold the same."""

import json
import platform
from typing import Any

from services.sandbox.seccomp import FAMILIES, MACHINES, NEW_NAMESPACES

_ARCHITECTURE = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_MAX_FAMILY = 46


def profile(machine: str | None = None, *, own_kernel: bool = False) -> str:
    """The profile as JSON, for the option ``seccomp=``. Unlike Docker's own it forbids io_uring.

    `own_kernel`: it is for gVisor, which knows no clone3, and whose filter knows no error but EPERM; a C library that
    is told EPERM starts no threads.

    Raises:
        KeyError: the architecture is not known; there must be no sandbox then.
    """
    machine = machine or platform.machine()
    denied = sorted(MACHINES[machine].denied)
    rules = [
        _rule(denied, _EPERM),
        *([] if own_kernel else [_rule(["clone3"], _ENOSYS)]),
        *(_rule(["clone"], _EPERM, _masked(1 << bit)) for bit in range(32) if NEW_NAMESPACES >> bit & 1),
        *(_rule(["socket"], _EAFNOSUPPORT, _equal(family)) for family in range(_MAX_FAMILY) if family not in FAMILIES),
        _rule(["socket"], _EAFNOSUPPORT, {"index": 0, "value": _MAX_FAMILY, "op": "SCMP_CMP_GE"}),
    ]
    whole = {"defaultAction": "SCMP_ACT_ALLOW", "architectures": [_ARCHITECTURE[machine]], "syscalls": rules}
    return json.dumps(whole, separators=(",", ":"))


def _rule(names: list[str], error: int, *args: dict[str, Any]) -> dict[str, Any]:
    return {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": error, "args": list(args)}


def _masked(flag: int) -> dict[str, Any]:
    return {"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"}


def _equal(value: int) -> dict[str, Any]:
    return {"index": 0, "value": value, "op": "SCMP_CMP_EQ"}
