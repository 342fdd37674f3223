"""What code of a submission would like to do, one function an attack. Each gets the facts of the judge's world, and
returns what it got; it has failed if it raises, returns nothing, or does not end."""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import platform
import resource
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from driftline.curate.core.system import seccomp

World = dict[str, Any]
Attack = Callable[[World], object]
ATTACKS: dict[str, Attack] = {}
NUMBERS = {**seccomp.CALLS, **seccomp.OF_ITSELF, "clone": seccomp.CLONE, "clone3": seccomp.CLONE3}
NUMBERS |= {"mount_setattr": (442, 442), "pivot_root": (155, 41), "open_by_handle_at": (304, 265)}
libc = ctypes.CDLL(None, use_errno=True)


def attack(function: Attack) -> Attack:
    ATTACKS[function.__name__] = function
    return function


def does(code: int) -> int:
    if code < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return code


def call(name: str, *given: Any) -> int:
    return does(libc.syscall(NUMBERS[name][platform.machine() == "aarch64"], *given))


def each(work: Callable[[Any], object], things: Any) -> list[object]:
    """What the work gives for those of the things for which it does not fail."""
    got: list[object] = []
    for thing in things:
        try:
            got.append([thing, work(thing)])
        except (OSError, ValueError):
            continue
    return got


def run(name: str, world: World, answers: BinaryIO) -> None:
    """An attack, and one line of JSON that says what it got."""
    world["answers"] = answers
    try:
        got = ATTACKS[name](world)
    except KeyError as error:  # a mistake of ours, such as a call without a number
        got, printed = repr(error), ""
    except (Exception, KeyboardInterrupt) as error:
        got, printed = None, repr(error)
    else:
        printed = ""
    answers.write(json.dumps([got, printed], default=repr).encode()[:4000] + b"\n")


# Other processes


@attack
def ptrace_the_parent(world: World) -> object:
    return does(libc.ptrace(16, 1, None, None)) or "attached"


@attack
def ptrace_the_judge(world: World) -> object:
    return does(libc.ptrace(0x4206, world["judge"], None, None)) or "seized"


@attack
def ptrace_itself_by_its_parent(world: World) -> object:
    return does(libc.ptrace(0, 0, None, None)) or "traced"


@attack
def read_memory_of_the_parent(world: World) -> object:
    return call("process_vm_readv", 1, None, 0, None, 0, 0) or "called"


@attack
def write_memory_of_the_judge(world: World) -> object:
    return each(lambda pid: open(f"/proc/{pid}/mem", "r+b").write(b"x"), (1, world["judge"]))


@attack
def read_the_judges_environment(world: World) -> object:
    paths = [path for path in Path("/proc").glob("[0-9]*/environ") if path.parts[2] != str(os.getpid())]
    return each(lambda path: path.read_bytes().count(b"="), paths)


@attack
def walk_through_the_judges_root(world: World) -> object:
    pids = (1, os.getppid(), world["judge"])
    return each(lambda pid: os.listdir(f"/proc/{pid}/root{world['folder']}"), pids)


@attack
def walk_through_the_judges_folder(world: World) -> object:
    return each(lambda pid: os.listdir(f"/proc/{pid}/cwd"), (1, world["judge"]))


@attack
def take_descriptors_of_the_parent(world: World) -> object:
    return call("pidfd_getfd", call("pidfd_open", 1, 0), 0, 0)


@attack
def kill_everyone(world: World) -> object:
    return each(lambda pid: os.kill(pid, signal.SIGKILL), (world["judge"], -1)) or None


@attack
def stop_the_parent(world: World) -> object:
    return each(lambda pid: os.kill(pid, signal.SIGSTOP), (1, os.getppid(), world["judge"]))


@attack
def kill_by_thread(world: World) -> object:
    return each(lambda pid: call("tgkill", pid, pid, 9), (1, world["judge"])) + each(
        lambda pid: call("tkill", pid, 9), (1,)
    )


@attack
def queue_a_signal(world: World) -> object:
    return each(lambda pid: call("rt_sigqueueinfo", pid, 9, bytes(128)), (1, world["judge"]))


@attack
def limit_the_judge(world: World) -> object:
    return each(lambda pid: resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1)), (1, world["judge"]))


@attack
def slow_the_judge_down(world: World) -> object:
    return each(lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19), (world["judge"],))


# More processes


@attack
def fork(world: World) -> object:
    return os.fork() or "forked"


@attack
def fork_by_the_kernel(world: World) -> object:
    return each(
        lambda given: call(*given), [("fork",), ("vfork",), ("clone", 17, 0, 0, 0, 0), ("clone3", bytes(88), 88)]
    )


@attack
def fork_into_namespaces(world: World) -> object:
    return call("clone", 0x10000000 | 0x00020000 | 17, 0, 0, 0, 0) or "cloned"


@attack
def fork_without_end(world: World) -> object:
    while True:
        os.fork()


@attack
def become_a_daemon(world: World) -> object:
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(60)
    return "survived"


@attack
def start_a_shell(world: World) -> object:
    return subprocess.run(["/bin/sh", "-c", "id"], capture_output=True, check=True).stdout


@attack
def become_another_program(world: World) -> object:
    os.execv(sys.executable, [sys.executable, "-c", "print(1)"])


@attack
def run_a_program_from_memory(world: World) -> object:
    Path("/tmp/x").write_bytes(b"#!/bin/sh\ntrue\n")
    os.chmod("/tmp/x", 0o4755)
    os.execve(os.open("/tmp/x", os.O_RDONLY), ["x"], {})


@attack
def start_threads_without_end(world: World) -> object:
    threading.stack_size(32768)
    while True:
        threading.Thread(target=time.sleep, args=(60,)).start()


# Rights and namespaces


@attack
def become_root(world: World) -> object:
    return each(lambda change: change(0) or "changed", (os.setuid, os.seteuid)) if os.getuid() else "root"


@attack
def take_capabilities_back(world: World) -> object:
    return does(libc.capset(struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[0xFFFFFFFF] * 6))) or "taken"


@attack
def make_namespaces(world: World) -> object:
    return each(lambda kind: does(libc.unshare(kind)), (0x10000000, 0x10020000, 0x40000000))


@attack
def enter_namespaces_of_the_parent(world: World) -> object:
    return each(lambda name: does(libc.setns(os.open(f"/proc/1/ns/{name}", 0), 0)), ("mnt", "net", "pid", "user"))


@attack
def mount_it_writable(world: World) -> object:
    flags = (0x20, 0x1020)
    places = [b"/", os.fsencode(os.__file__), b"/proc", b"/usr/lib"]
    return each(
        lambda given: does(libc.mount(b"none", given[0], None, given[1], None)), [(p, f) for p in places for f in flags]
    )


@attack
def mount_it_writable_by_the_new_calls(world: World) -> object:
    packed = struct.pack("QQQQ", 0, 1, 0, 0)
    return each(lambda place: call("mount_setattr", -100, place, 0x8000, packed, 32), (b"/", b"/proc", b"/usr/lib"))


@attack
def take_a_mount_away(world: World) -> object:
    return each(lambda place: does(libc.umount2(place, 2)), (b"/proc", b"/usr/lib", b"/dev/null", b"/"))


@attack
def leave_the_root(world: World) -> object:
    os.mkdir("/tmp/x")
    os.chroot("/tmp/x")
    os.chdir("../" * 20)
    return os.listdir(".")


@attack
def swap_the_root(world: World) -> object:
    return call("pivot_root", b"/tmp", b"/tmp") or "swapped"


@attack
def open_a_file_by_its_number(world: World) -> object:
    handle = struct.pack("Ii8s", 8, 1, struct.pack("II", 2, 0))  # inode 2 of ext4: its root
    return call("open_by_handle_at", os.open("/usr/lib", os.O_RDONLY), handle, 0)


@attack
def rename_the_machine(world: World) -> object:
    socket.sethostname("mine")
    return "renamed"


# Files and devices


@attack
def write_beside_the_stream(world: World) -> object:
    return open(world["kept"], "r+").write("theirs")


@attack
def read_beside_the_stream(world: World) -> object:
    return Path(world["kept"]).read_text()


@attack
def write_through_links(world: World) -> object:
    os.symlink(world["kept"], "/tmp/link")
    os.symlink("../../../../../../.." + world["kept"], "/tmp/other")
    return each(lambda path: open(path, "r+").write("theirs"), ("/tmp/link", "/tmp/other"))


@attack
def link_files_into_its_own_folder(world: World) -> object:
    return each(lambda path: os.link(path, "/tmp/hard"), (os.__file__, world["stream"] + "/a.bin"))


@attack
def change_the_stream(world: World) -> object:
    path = Path(world["stream"], "a.bin")
    changes = (lambda: path.write_bytes(b"x"), path.unlink, lambda: path.chmod(0o777), lambda: os.truncate(path, 0))
    return each(lambda change: change(), changes)


@attack
def change_the_packages(world: World) -> object:
    return each(lambda place: Path(place, "sitecustomize.py").write_text("import os"), filter(None, sys.path))


@attack
def change_python(world: World) -> object:
    changes = (
        lambda: os.unlink(os.__file__),
        lambda: os.chmod(os.__file__, 0),
        lambda: os.rename(os.__file__, "/tmp/x"),
    )
    return each(lambda change: change(), changes)


@attack
def read_what_is_not_its_business(world: World) -> object:
    return each(lambda name: os.open(name, os.O_RDONLY), NOT_ITS_BUSINESS)


@attack
def open_the_disk(world: World) -> object:
    return each(lambda name: os.open(f"/dev/{name}", os.O_RDWR), ("vda", "sda", "mem", "kmsg", "fuse", "loop0", "port"))


@attack
def make_a_device(world: World) -> object:
    return each(lambda kind: os.mknod(f"/tmp/{kind}", 0o666 | kind, os.makedev(1, 1)), (0o060000, 0o020000))


@attack
def add_to_the_devices(world: World) -> object:
    return Path("/dev/mine").write_text("x")


@attack
def change_the_kernels_settings(world: World) -> object:
    names = ("sys/kernel/core_pattern", "sys/kernel/hostname", "sysrq-trigger", "sys/vm/drop_caches", "1/oom_score_adj")
    return each(lambda name: open(f"/proc/{name}", "w").write("1"), names)


@attack
def read_the_kernels_memory(world: World) -> object:
    return each(lambda name: open(f"/proc/{name}", "rb").read(64), ("kcore", "kmsg", "1/maps", "1/stack"))


@attack
def type_into_the_terminal(world: World) -> object:
    def typed(handle: int) -> str:
        for key in b"exit\n":
            fcntl.ioctl(handle, termios.TIOCSTI, bytes([key]))
        return "typed"

    return each(typed, range(5)) + each(lambda name: typed(os.open(name, os.O_RDWR)), ("/dev/tty", world["terminal"]))


@attack
def have_a_terminal(world: World) -> object:
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[4]) or None


@attack
def take_the_terminal(world: World) -> object:
    os.setsid() if os.getsid(0) != os.getpid() else None
    return each(lambda name: os.open(name, os.O_RDWR), ("/dev/tty", "/dev/console", "/dev/ptmx", world["terminal"]))


# Networks


@attack
def connect_to_a_port(world: World) -> object:
    return each(lambda port: socket.create_connection(("127.0.0.1", port), 1), (world["port"],))


@attack
def connect_to_a_socket_file(world: World) -> object:
    return each(lambda name: socket.socket(socket.AF_UNIX).connect(name), (world["socket"], "\0" + world["abstract"]))


@attack
def send_a_packet(world: World) -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", world["port"]))


@attack
def talk_to_the_kernel(world: World) -> object:
    return each(lambda kind: socket.socket(*kind), [(16, 3, 0), (17, 3, 3), (2, 3, 1), (38, 5, 0)])


@attack
def open_a_ring(world: World) -> object:
    return call("io_uring_setup", 8, ctypes.create_string_buffer(120))


@attack
def use_odd_calls(world: World) -> object:
    calls = [
        ("bpf", 0, bytes(128), 128), ("perf_event_open", bytes(128), 0, -1, -1, 0), ("userfaultfd", 0),
        ("keyctl", 0, -3, 0), ("add_key", b"user", b"a", b"b", 1, -3),
    ]  # fmt: skip
    return each(lambda given: call(*given), calls)


# Memory, disk, time, words


@attack
def hide_memory_in_a_file(world: World) -> object:
    return each(lambda given: call(*given), [("memfd_create", b"x", 0), ("memfd_secret", 0)])


@attack
def hide_memory_in_segments(world: World) -> object:
    return each(lambda given: call(*given), SEGMENTS)


@attack
def share_memory(world: World) -> object:
    shared = mmap.mmap(-1, 2**32)
    return len(shared)


@attack
def take_all_memory(world: World) -> object:
    return sum(len(bytearray(2**26)) for _ in iter(lambda: held.append(bytearray(2**26)), 0))


held: list[Any] = []
NOT_ITS_BUSINESS = ("/etc/passwd", "/etc/shadow", "/etc/hostname", "/root/.ssh", "/home", "/var", "/boot", "/bin")
SEGMENTS = [
    ("shmget", 0, 2**20, 0o1600), ("semget", 0, 1, 0o1600), ("msgget", 0, 0o1600), ("mq_open", b"q", 0o102, 0o600, 0)
]  # fmt: skip


@attack
def fill_the_disk(world: World) -> object:
    for number in range(10**6):
        with open(f"/tmp/{number % 50}", "ab") as file:
            file.write(bytes(2**20))
    return "filled"


@attack
def fill_the_other_folders(world: World) -> object:
    size = 0
    for name in ("/run", "/tmp"):
        with open(f"{name}/x", "wb") as file:
            size += file.write(bytes(2**22)) or 0
            while file.write(bytes(2**20)):
                size += 2**20
    return size


@attack
def fill_the_table_of_files(world: World) -> object:
    for number in range(10**6):
        os.close(os.open(f"/tmp/{number}", os.O_CREAT))
    return "filled"


@attack
def write_a_huge_file(world: World) -> object:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    os.truncate(os.open("/tmp/x", os.O_CREAT | os.O_RDWR), 2**40)
    return os.path.getsize("/tmp/x")


@attack
def dig_deep(world: World) -> object:
    for _ in range(10**6):
        os.mkdir("d")
        os.chdir("d")
    return "deep"


@attack
def call_itself_without_end(world: World) -> object:
    sys.setrecursionlimit(10**9)
    value: Any = []
    for _ in range(10**5):
        value = [value]
    return repr(value)


@attack
def never_end(world: World) -> object:
    for number in range(1, 65):
        each(lambda n: signal.signal(n, signal.SIG_IGN), (number,))
    while True:
        pass


@attack
def outlive_the_judge(world: World) -> object:
    libc.prctl(1, 0, 0, 0, 0)
    time.sleep(60)
    return "survived"


@attack
def end_without_a_word(world: World) -> object:
    os._exit(0)


@attack
def close_the_pipes_and_go_on(world: World) -> object:
    os.closerange(0, 100)
    time.sleep(60)


@attack
def print_without_end(world: World) -> object:
    while True:
        os.write(1, b"\x1b]0;mine\x07\x1b[2J" * 4096)


@attack
def answer_without_end(world: World) -> object:
    while True:
        world["answers"].write(b"[" * 2**20)
