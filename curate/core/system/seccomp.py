"""System calls that the kernel forbids one process for good (seccomp).

Numbers: Linux's asm/unistd.h. Programs of the filter: Linux's Documentation/userspace-api/seccomp_filter.rst.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping

from driftline.curate.core.system.rights import called

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # AUDIT_ARCH, column of CALLS
CALLS = {  # name: number on x86_64, on aarch64 (-1: it has none)
    "fork": (57, -1), "vfork": (58, -1), "execve": (59, 221), "execveat": (322, 281),  # one process, one program
    "unshare": (272, 97), "setns": (308, 268),  # no further namespaces
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),  # of other processes
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "semget": (64, 190),
    "msgget": (68, 186), "mq_open": (240, 180),  # memory that no limit counts
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427),  # often attacked, never needed
}  # fmt: skip
OF_FILES = {  # calls that change files which a process may only read, as far as Landlock does not forbid them
    "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, -1),
    "fchown": (93, 55), "lchown": (94, -1), "fchownat": (260, 54), "utime": (132, -1), "utimes": (235, -1),
    "futimesat": (261, -1), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setscheduler": (144, 119),  # and other processes
}  # fmt: skip
CLONE, CLONE3 = (56, 220), (435, 435)
OF_ITSELF = {"kill": (62, 129), "tgkill": (234, 131), "prlimit64": (302, 261)}  # the first argument is a process
DEATH_SIGNAL = (157, 167)  # prctl, of which PR_SET_PDEATHSIG is forbidden
THREAD = 0x10000  # CLONE_THREAD
X32 = 0x40000000
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # instructions of classic BPF
ALLOW, FAIL, KILL = 0x7FFF0000, 0x00050000, 0x80000000
NUMBER, ARCHITECTURE, FIRST = 0, 4, 16  # places in struct seccomp_data
SECCOMP = 22  # PR_SET_SECCOMP


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def forbid_calls(libc: ctypes.CDLL, more: Mapping[str, tuple[int, int]] = {}) -> None:
    """One process and one program from now on, which reaches no other process, no network and no memory that its
    limits do not count. Threads are allowed. more: further calls, as `OF_FILES`. Raises OSError."""
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), f"seccomp for {machine}")
    architecture, column = ARCHITECTURES[machine]
    code = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    code += [(AT_LEAST, 0, 1, X32), (RETURN, 0, 0, KILL)]
    for numbers in (CALLS | dict(more)).values():
        if numbers[column] >= 0:
            code += [(EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, FAIL | errno.EPERM)]
    code += [(EQUAL, 0, 1, CLONE3[column]), (RETURN, 0, 0, FAIL | errno.ENOSYS)]  # its flags cannot be read: use clone
    code += _first(CLONE[column], [(ANY_BIT, 0, 1, THREAD), (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, FAIL | errno.EPERM)])
    for numbers in OF_ITSELF.values():
        own = [(EQUAL, 1, 0, os.getpid()), (EQUAL, 0, 1, 0), (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, FAIL | errno.EPERM)]
        code += _first(numbers[column], own)
    code += _first(DEATH_SIGNAL[column], [(EQUAL, 0, 1, 1), (RETURN, 0, 0, FAIL | errno.EPERM), (RETURN, 0, 0, ALLOW)])
    packed = b"".join(struct.pack("HBBI", *line) for line in [*code, (RETURN, 0, 0, ALLOW)])
    program = _Program(len(packed) // 8, packed)
    called(libc.prctl(SECCOMP, 2, ctypes.byref(program), 0, 0), "seccomp")


def _first(number: int, then: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Instructions for the first argument of one call; each way through them ends with a decision."""
    return [(EQUAL, 0, len(then) + 1, number), (LOAD, 0, 0, FIRST), *then]
