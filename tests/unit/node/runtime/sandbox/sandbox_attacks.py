"""Programs that try to leave their sandbox; they print what they have reached."""

# words: the secret, the pid of a process of the machine, and paths at which the secret may be
BREAK_OUT = r"""
import ctypes, os, sys
secret, pid, paths = sys.argv[1].encode(), sys.argv[2], sys.argv[3:]
libc = ctypes.CDLL(None, use_errno=True)
def look(path):
    try:
        with open(path, "rb") as file:
            if secret in file.read(1 << 20):
                print("FOUND", path)
    except OSError:
        pass
def walk(folder):
    for path in paths:
        look(folder + path)
walk("")
print("processes", sum(name.isdigit() for name in os.listdir("/proc")))
for number in (1, int(pid)):
    for place in ("root", "cwd", "cwd/..", "cwd/../.."):
        walk(f"/proc/{number}/{place}")
for part in ("environ", "root/proc/1/environ"):
    look(f"/proc/{pid}/{part}")
try:
    os.kill(int(pid), 0)
    print("FOUND a process")
except OSError:
    pass
for name in os.listdir("/proc/self/fd"):  # what was left open
    try:
        target = os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        continue
    if target.startswith("/") and not target.startswith(("/dev/", "/proc/")):
        print("FOUND", target)
        walk(f"/proc/self/fd/{name}")
def mounts():
    for path in paths:
        for above in (path, os.path.dirname(path), "/etc", "/proc", "/proc/sys", "/dev", "/"):
            libc.umount2(above.encode(), 2)
        walk("")
    os.makedirs("/tmp/m", exist_ok=True)
    for disk, kind in (("/dev/vda", "ext4"), ("/dev/sda1", "ext4"), ("none", "devtmpfs"), ("none", "tmpfs")):
        if libc.mount(disk.encode(), b"/tmp/m", kind.encode(), 0, None) == 0:
            walk("/tmp/m")
            libc.umount2(b"/tmp/m", 2)
    tree = libc.syscall(428, -100, b"/", 1)
    if tree >= 0:
        walk(f"/proc/self/fd/{tree}")
mounts()
for number in range(0, 64):  # disks as devices of one's own
    for kind in (0o020000, 0o060000):
        try:
            os.mknod(f"/tmp/d{kind}-{number}", 0o600 | kind, os.makedev(254, number))
            look(f"/tmp/d{kind}-{number}")
        except OSError:
            pass
try:  # out of a chroot, as root can
    os.mkdir("/tmp/c")
    top = os.open("/", os.O_RDONLY)
    os.chroot("/tmp/c")
    os.fchdir(top)
    for _ in range(64):
        os.chdir("..")
    os.chroot(".")
    walk("")
except OSError:
    pass
if libc.unshare(0x10000000 | 0x20000) == 0:
    mounts()
print("tried")
"""

# words: a port of the machine, the path of a socket, the name of an abstract one
CONNECT = r"""
import socket, sys
for name, family, address in (
    ("tcp", socket.AF_INET, ("127.0.0.1", int(sys.argv[1]))),
    ("unix", socket.AF_UNIX, sys.argv[2]),
    ("abstract", socket.AF_UNIX, "\0" + sys.argv[3]),
):
    with socket.socket(family) as made:
        made.settimeout(3)
        try:
            made.connect(address)
            print(name, "reached")
        except OSError:
            print(name, "refused")
"""

REFUSED_CALLS = r"""
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
arm = os.uname().machine == "aarch64"
def call(name, number, *words):
    print(name, "ok" if libc.syscall(number, *words) >= 0 else errno.errorcode[ctypes.get_errno()])
call("mount", 40 if arm else 165, b"none", b"/tmp", b"tmpfs", 0, 0)
call("unshare", 97 if arm else 272, 0x10000000)
call("bpf", 280 if arm else 321, 0, None, 0)
call("clone3", 435, None, 0)
"""

OVERWRITE = r"""
import errno
try:
    open("/proc/self/exe", "r+b").close()
    print("opened")
except OSError as error:
    print(errno.errorcode[error.errno])
"""
