"""What a process does to itself before it runs code that it must not trust (Linux only).

`leave` moves into namespaces of its own, `fence` sets every limit and gives up every right. Both need no privilege:
user namespaces grant the little that is needed, and inside its own namespace a process can harm only itself. They raise
`OSError` where the kernel refuses, so that nothing runs half fenced.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import socket
import struct

from whet.sandbox.limits import SCRATCH, Limits, set_limits

UNPRIVILEGED = 65533
"""The user and group that root becomes. Not `nobody`, whom other programs share: limits are counted by user."""

NEW_MOUNTS, NEW_HOST_NAME, NEW_IPC = 0x00020000, 0x04000000, 0x08000000
NEW_USER, NEW_PIDS, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
READ_ONLY, NO_SUID, NO_DEVICES, NO_EXEC = 1, 2, 4, 8
SET_DUMPABLE, SET_SECCOMP, SET_NO_NEW_PRIVILEGES = 4, 22, 38

_libc = ctypes.CDLL(None, use_errno=True)


def _do(call: str, result: int) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)}")


def _prctl(call: str, option: int, *values: object) -> None:
    _do(call, _libc.prctl(option, *values, *(ctypes.c_ulong(0),) * (4 - len(values))))


def leave() -> None:
    """Moves the caller into a user, mount, network and IPC namespace of its own. Its next child becomes the first
    process of a new process namespace: with that child, everything in there dies."""
    user, group = os.getuid(), os.getgid()
    flags = NEW_USER | NEW_PIDS | NEW_MOUNTS | NEW_NETWORK | NEW_IPC | NEW_HOST_NAME
    _do("unshare", _libc.unshare(flags))
    _prctl("dumpable", SET_DUMPABLE, ctypes.c_ulong(1))  # else /proc/self belongs to root
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def fence(limits: Limits) -> None:
    """Scratch instead of the parent's folders, no /proc, limits, no rights: for the first process after `leave`."""
    os.setsid()
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # should the machine run out of memory all the same, this one goes first
    _mount(SCRATCH, NO_SUID | NO_DEVICES, f"size={int(limits.scratch_mib * 2**20)},nr_inodes=1024,mode=700")
    _mount("/proc", READ_ONLY | NO_SUID | NO_DEVICES | NO_EXEC, "size=4096,mode=500")
    os.chdir(SCRATCH)
    set_limits(limits)
    # The keeper, which has this child's clock, counts as one of the user's processes too.
    resource.setrlimit(resource.RLIMIT_NPROC, (limits.processes + 1,) * 2)
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, (0, 0))
    _prctl("dumpable", SET_DUMPABLE, ctypes.c_ulong(0))
    _drop_capabilities()
    _prctl("no new privileges", SET_NO_NEW_PRIVILEGES, ctypes.c_ulong(1))
    _filter_calls()


def shed_root() -> None:
    """Root becomes a user without rights: no limit on processes binds root."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(*(UNPRIVILEGED,) * 3)
        os.setresuid(*(UNPRIVILEGED,) * 3)
    _prctl("no new privileges", SET_NO_NEW_PRIVILEGES, ctypes.c_ulong(1))
    _prctl("dumpable", SET_DUMPABLE, ctypes.c_ulong(0))  # nobody may trace this process


def _mount(place: str, flags: int, options: str) -> None:
    _do(f"mount {place}", _libc.mount(b"tmpfs", place.encode(), b"tmpfs", ctypes.c_ulong(flags), options.encode()))


def _drop_capabilities() -> None:
    version_3 = 0x20080522
    nothing = (ctypes.c_uint32 * 6)()
    _do("capset", _libc.capset((ctypes.c_uint32 * 2)(version_3, 0), nothing))


# --- system calls ---------------------------------------------------------------------------------------------------
# A namespace of its own would give a child back the right to mount, and with it memory that no limit counts; so would
# System V memory and memfd. Keys outlive the process that left them. The rest has no use but attacks.

_FORBIDDEN = {
    # name: number on x86_64, on aarch64
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190),
    "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
}  # fmt: skip
_MACHINES = {"x86_64": (0, 0xC000003E, 56, 41), "aarch64": (1, 0xC00000B7, 220, 198)}
"""Column of the table, the kernel's name of the architecture, and the numbers of `clone` and `socket`."""
_SOCKETS = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
"""Families that a network namespace confines. It does not confine a virtual machine's socket to its host (vsock)."""
_CLONE3, _X32 = 435, 0x40000000
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000


def _filter_program(machine: str) -> bytes:
    """The program of the kernel's filter of system calls. An instruction is a code, how many to skip if true and if
    false, and a number."""
    column, architecture, clone, new_socket = _MACHINES[machine]
    lines = [
        (_LOAD, 0, 0, 4),  # the architecture: numbers of another one would pass for ours
        (_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),  # the call's number
        (_IF_AT_LEAST, 0, 1, _X32),  # a second table of calls on x86_64
        (_RETURN, 0, 0, _KILL),
    ]
    for number in [numbers[column] for numbers in _FORBIDDEN.values()]:
        lines += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | errno.EPERM)]
    # The C library falls back to clone, whose flags are not hidden behind a pointer.
    lines += [(_IF_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _REFUSE | errno.ENOSYS)]
    lines += [(_IF_EQUAL, 0, 4, clone), (_LOAD, 0, 0, 16), (_IF_ANY_BIT, 0, 1, NEW_USER)]
    lines += [(_RETURN, 0, 0, _REFUSE | errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
    lines += [(_IF_EQUAL, 1, 0, new_socket), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 16)]
    lines += [line for family in _SOCKETS for line in ((_IF_EQUAL, 0, 1, family), (_RETURN, 0, 0, _ALLOW))]
    lines += [(_RETURN, 0, 0, _REFUSE | errno.EPERM)]
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def _filter_calls() -> None:
    if platform.machine() not in _MACHINES:
        raise OSError(errno.ENOSYS, f"no filter of system calls for {platform.machine()}")
    program = _filter_program(platform.machine())
    buffer = ctypes.create_string_buffer(program)
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    _prctl("seccomp", SET_SECCOMP, ctypes.c_ulong(2), ctypes.c_char_p(header))
