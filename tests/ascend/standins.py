"""No-op stand-ins for the libraries of CANN that MindSpore's Ascend plugin links to.

They hold no code of CANN: each symbol is a generated function that returns 0 or a dummy address.
With them the plugin loads where neither CANN nor an NPU is, and a dry run (MS_SIMULATION_LEVEL)
compiles graphs for Ascend. Nothing is computed: every result is zeros.

python tests/ascend/standins.py FOLDER    # builds into FOLDER, prints the variables to export
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

TOOLS = {"gcc": "gcc", "g++": "g++", "nm": "binutils", "readelf": "binutils"}
# Loaded by name at run time, so that no file says that it needs them.
DLOPENED = ("libacl_op_compiler.so", "libacl_tdt_channel.so", "libmsprofiler.so", "libhccl.so")
# Found by name at run time, and in no other place of the plugin than here.
EXECUTOR = """
aclnnInit aclnnFinalize aclCreateBoolArray aclCreateFloatArray aclCreateIntArray aclCreateScalar
aclCreateTensor aclCreateTensorList aclDestroyAclOpExecutor aclDestroyBoolArray
aclDestroyFloatArray aclDestroyIntArray aclDestroyScalar aclDestroyTensor aclDestroyTensorList
aclSetAclOpExecutorRepeatable aclSetDynamicTensorAddr aclSetTensorAddr aclGetViewShape
InitHugeMemThreadLocal UnInitHugeMemThreadLocal ReleaseHugeMem InitPTACacheThreadLocal SetPTAHashKey
PTAGetExecCache UnInitPTACacheThreadLocal AddTensorAddrToCachedList CanUsePTACache
"""
SYSTEM = (
    "libstdc++.so.6 libm.so.6 libgomp.so.1 libgcc_s.so.1 libpthread.so.0 libc.so.6 libdl.so.2 "
    "librt.so.1"
)
OF_PYTHON_OR_COMPILER = re.compile(r"_?_?Py|_ITM|__gmon|__tls|_ZTH|__cxa_finalize")
LOOKED_UP = re.compile(rb"\x00((?:acl|rt[A-Z]|Hccl|aclnn)[A-Za-z0-9]{3,60})(?=\x00)")
NEEDED = re.compile(r"NEEDED.*\[(lib[^]]+)\]")

# Members whose result is used: a function that returns 0 would be a crash.
MEMBERS = """
#include <cstdint>
#include <map>
#include <memory>
#include <string>
namespace ge {
class StatusFactory {
 public:
  static StatusFactory *Instance();
  std::map<uint32_t, std::string> codes_;
  char padding_[256] = {0};
};
StatusFactory *StatusFactory::Instance() { static StatusFactory one; return &one; }
class OperatorImpl;
class Operator {
 public:
  Operator() {}
  virtual ~Operator() = default;
  std::shared_ptr<OperatorImpl> impl_;
};
class OperatorFactory {
 public:
  static Operator CreateOperator(const char *, const char *);
  static Operator CreateOperator(const std::string &, const std::string &);
};
Operator OperatorFactory::CreateOperator(const char *, const char *) { return Operator(); }
Operator OperatorFactory::CreateOperator(const std::string &, const std::string &) {
  return Operator();
}
}
"""
HAVE_A_BODY = {
    "_ZN2ge13StatusFactory8InstanceEv",
    "_ZN2ge15OperatorFactory14CreateOperatorEPKcS2_",
    "_ZN2ge15OperatorFactory14CreateOperatorERKSsS2_",
}
# MindSpore asks which chip it is on; a null pointer as a text would be a crash.
RETURNS = {
    "aclrtGetSocName": '(long)"Ascend910B1"',
    "_ZNK2ge12AscendString9GetStringEv": '(long)""',
}


class NoStandInsError(RuntimeError):
    """The stand-ins cannot be built here; the message says what is missing."""


def missing_tools() -> list[str]:
    """Name the tools of the compiler that are not on the path."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def mindspore_folder() -> Path:
    """Find MindSpore without importing it, which would load the plugin."""
    spec = importlib.util.find_spec("mindspore")
    if spec is None or not spec.submodule_search_locations:
        raise NoStandInsError("MindSpore is not installed; pip install mindspore")
    return Path(spec.submodule_search_locations[0])


def build(folder: Path) -> dict[str, str]:
    """Build the stand-ins in a folder and return the environment variables that use them."""
    missing = missing_tools()
    if missing:
        packages = sorted({TOOLS[tool] for tool in missing})
        raise NoStandInsError(
            f"{', '.join(missing)} not found, which the stand-ins for CANN are built with; "
            f"install them (Debian: apt install {' '.join(packages)}), or source CANN's set_env.sh"
        )
    package = mindspore_folder()
    plugin = plugin_files(package)
    # MindSpore looks for "latest" or "cann" in the path of the library that it loaded
    home = folder / "Ascend" / "latest"
    libraries = home / "lib64"
    python = folder / "python"
    for made in (libraries, home / "opp", home / "opp_kernel", python / "hccl"):
        made.mkdir(parents=True, exist_ok=True)
    (python / "hccl" / "__init__.py").write_text("")
    (python / "hccl" / "sys_version.py").write_text('__sys_version__ = "0.0"\n')

    looked_up = looked_up_names(plugin)
    _compile(folder, libraries, undefined_symbols(plugin, package), looked_up)
    for name in needed_libraries(plugin, package):
        (libraries / name).unlink(missing_ok=True)
        (libraries / name).symlink_to("libascendcl.so")
    return {
        "LD_LIBRARY_PATH": str(libraries),
        "ASCEND_HOME_PATH": str(home),
        "ASCEND_OPP_PATH": str(home / "opp"),
        "PYTHONPATH": str(python),
    }


def plugin_files(package: Path) -> list[Path]:
    """List the libraries of the Ascend plugin."""
    lib = package / "lib"
    patterns = ("plugin/ascend/**/*.so*", "plugin/libmindspore_ascend.so*")
    patterns += ("plugin/libmindspore_ops_ascend.so", "libmindspore_ge_backend.so")
    found = [file for pattern in patterns for file in lib.glob(pattern) if file.is_file()]
    if not found:
        raise NoStandInsError(
            f"{package} holds no Ascend plugin; use the wheel for Linux on x86-64 or aarch64"
        )
    return found


def undefined_symbols(plugin: Iterable[Path], package: Path) -> set[str]:
    """Return what the plugin links to and finds neither in MindSpore nor in the system."""
    plugin, lib = list(plugin), package / "lib"
    own = [*lib.glob("*.so*"), *package.glob("*.so"), *plugin, *lib.glob("plugin/*.so*")]
    own = [file for file in own if "gpu" not in file.name]
    system = [Path(found) for name in SYSTEM.split() if (found := _of_system(name))]
    wanted = set().union(*(_symbols(file, "--undefined-only") for file in plugin))
    defined = set().union(*(_symbols(file, "--defined-only") for file in own + system))
    return {name for name in wanted - defined if not OF_PYTHON_OR_COMPILER.match(name)}


def looked_up_names(plugin: Iterable[Path]) -> set[str]:
    """Return the names that the plugin asks for at run time: they are texts in its files."""
    files = [file for file in plugin if "mindspore" in file.name]
    return {name.decode() for file in files for name in LOOKED_UP.findall(file.read_bytes())}


def needed_libraries(plugin: Iterable[Path], package: Path) -> list[str]:
    """Return the names of the libraries of CANN that the plugin loads."""
    own = {file.name for file in (package / "lib").glob("**/*.so*")}
    said = "".join(_output("readelf", "-d", str(file)) for file in plugin)
    names = {*DLOPENED, *NEEDED.findall(said)} - own
    left_out = ("libascendcl", "libopapi", "libmpi", "ld-")
    return sorted(n for n in names if not n.startswith(left_out) and not _of_system(n))


def _compile(folder: Path, libraries: Path, linked: set[str], looked_up: set[str]) -> None:
    operators = {name for name in looked_up if re.match(r"aclnn[A-Z]", name)}
    size = "GetWorkspaceSize"
    operators |= {name + size for name in operators if not name.endswith(size)}
    others = {name for name in looked_up if not name.startswith("aclnn")}
    (folder / "linked.c").write_text(c_source(linked | others))
    (folder / "members.cc").write_text(MEMBERS)
    (folder / "opapi.c").write_text(c_source(operators | set(EXECUTOR.split())))
    quiet = ("-fPIC", "-w")
    _run(folder, "gcc", "-c", *quiet, "-o", "linked.o", "linked.c")
    # MindSpore is built with the old layout of std::string
    abi = "-D_GLIBCXX_USE_CXX11_ABI=0"
    _run(folder, "g++", "-c", *quiet, abi, "-o", "members.o", "members.cc")
    shared = str(libraries / "libascendcl.so")
    _run(folder, "g++", "-shared", "-o", shared, "linked.o", "members.o")
    _run(folder, "gcc", "-shared", *quiet, "-o", str(libraries / "libopapi.so"), "opapi.c")


def c_source(symbols: Iterable[str]) -> str:
    """Return C that defines each symbol: a function, or memory for the data of a C++ class."""
    lines = ["static char memory[65536];"]
    for number, name in enumerate(sorted(set(symbols) - HAVE_A_BODY)):
        label = f'__asm__("{name}")'
        if name.startswith(("_ZTI", "_ZTV", "_ZTS")):
            lines.append(f"char d{number}[4096] {label} = {{0}};")
        else:
            lines.append(f"long f{number}(void) {label};")
            lines.append(f"long f{number}(void) {{ return {_result(name)}; }}")
    return "\n".join(lines) + "\n"


def _result(name: str) -> str:
    creates = "Create" in name and name.startswith("acl") and not name.startswith("aclrt")
    return RETURNS.get(name, "(long)memory" if creates else "0")


def _symbols(file: Path, kind: str) -> set[str]:
    lines = _output("nm", "-D", kind, str(file)).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines if line.split()}


def _of_system(name: str) -> str | None:
    """Return where the linker finds a library; gcc says the bare name where it finds none."""
    found = _output("gcc", f"-print-file-name={name}").strip()
    return found if Path(found).is_absolute() else None


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise NoStandInsError(f"{' '.join(command[:2])} failed: {done.stderr.strip()[:300]}")


if __name__ == "__main__":
    try:
        variables = build(Path(sys.argv[1]).resolve())
    except (NoStandInsError, IndexError) as error:
        sys.exit(f"standins.py: {error}; usage: standins.py FOLDER")
    for key, value in variables.items():
        print(f"export {key}={value}")
