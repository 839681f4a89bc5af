"""Stand-ins for CUDA and TensorRT, just enough for ONNX Runtime's GPU providers to load and speak.

Written in C from what the installed provider libraries import: every function under the soname and
symbol version that they want, returning 0. TensorRT's objects are tables of such functions, in the
order of its binary interface (the same throughout version 10); a few do something:

- the parser claims every node of the network, so that an engine is built for it; all but the last
  where ``STUB_LEAVES_ONE`` is set;
- the builder makes an "engine" of :data:`PLAN`, or none where ``STUB_BUILD_FAILS`` is set;
- the runtime takes that engine back, and no other.

So ONNX Runtime's own parsing of options, loading, building and caching run for real, and say what
they say on a GPU.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

__all__ = ["PLAN", "TENSORRT_VERSION", "missing_tools", "write_cuda", "write_tensorrt"]

PLAN = b"an engine of the stub"
TENSORRT_VERSION = 101400
"""As ``getInferLibVersion`` tells it; both ONNX Runtimes were compiled against it."""

_SYSTEM_VERSIONS = ("GLIBC", "GCC", "CXXABI")
_CREATE = "int {name}(void **made) {{ *made = calloc(1, 4096); return 0; }}"
_ALLOCATE = "int {name}(void **made, size_t size) {{ *made = calloc(1, size); return 0; }}"
_CUDA = {
    "cudaGetDeviceCount": "int {name}(int *count) {{ *count = 2; return 0; }}",
    "cudaGetDevice": "int {name}(int *device) {{ *device = 0; return 0; }}",
    "cudaRuntimeGetVersion": "int {name}(int *version) {{ *version = 12080; return 0; }}",
    "cudaGetDeviceProperties_v2": (
        "int {name}(char *filled, int device) {{ memset(filled, 0, 700); return 0; }}"
    ),
    "cudaMemGetInfo": (
        "int {name}(size_t *free, size_t *total) {{ *free = *total = 1ul << 34; return 0; }}"
    ),
}

_OBJECTS = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static long zero(void) { return 0; }
#define OBJECT(name, other) \\
  static void *name##_table[128], *name[64]; \\
  static void *make_##name(void) { \\
    if (!name[0]) { \\
      for (int i = 0; i < 128; i++) name##_table[i] = (void *)(other); \\
      for (int i = 1; i < 64; i++) name[i] = name; /* the implementation behind the interface */ \\
      name[0] = name##_table; \\
    } \\
    return name; \\
  }
OBJECT(empty, zero)
"""
_TENSORRT = (
    _OBJECTS
    + """
#define PLAN "@PLAN@"
OBJECT(plan, zero)
static void *plan_data(void) { return PLAN; }
static long plan_size(void) { return sizeof(PLAN) - 1; }
static void *filled_plan(void) {
  make_plan();
  plan_table[2] = plan_data;
  plan_table[3] = plan_size;
  return plan;
}
OBJECT(timings, filled_plan)
OBJECT(config, make_timings)
typedef struct { int count; long sizes[8]; } Shape;
OBJECT(input, zero)
static char *input_name(void) { return "image"; }
static Shape *input_shape(Shape *made) { /* returned by value: in what the caller points to */
  Shape any_batch = {4, {-1, 3, 256, 256}};
  *made = any_batch;
  return made;
}
OBJECT(network, zero)
static long one(void) { return 1; }
static void *make_whole_network(void) {
  make_input();
  input_table[3] = input_name; /* getName */
  input_table[5] = input_shape; /* getDimensions */
  make_network();
  network_table[14] = one; /* getNbInputs */
  network_table[15] = make_input; /* getInput */
  return network;
}
OBJECT(builder, make_empty)
static void *build(void) { return getenv("STUB_BUILD_FAILS") ? NULL : filled_plan(); }
OBJECT(engine, zero)
OBJECT(runtime, zero)
static void *deserialize(void *self, const void *data, size_t size) {
  if (size != sizeof(PLAN) - 1 || memcmp(data, PLAN, size)) return NULL;
  make_engine();
  engine_table[5] = make_empty; /* createExecutionContext */
  return engine;
}
void *createInferBuilder_INTERNAL(void) {
  make_builder();
  builder_table[7] = make_config; /* createBuilderConfig */
  builder_table[8] = make_whole_network; /* createNetworkV2 */
  builder_table[14] = build; /* buildSerializedNetwork */
  return builder;
}
void *createInferRuntime_INTERNAL(void) {
  make_runtime();
  runtime_table[3] = deserialize; /* deserializeCudaEngine */
  return runtime;
}
void *createInferRefitter_INTERNAL(void) { return make_empty(); }
void *getPluginRegistry(void) { return make_empty(); }
int getInferLibVersion(void) { return @VERSION@; }
"""
)
_PARSER = (
    _OBJECTS
    + """
int getInferLibVersion(void); /* from libnvinfer, so that it has to be there first */
static unsigned long number(const unsigned char **at) {
  unsigned long value = 0;
  int shift = 0;
  do value |= (**at & 127ul) << shift, shift += 7; while (*(*at)++ & 128);
  return value;
}
/* How often a field is in a protobuf message; its last content, where that is bytes. */
static long fields(const unsigned char **at, size_t size, unsigned long wanted, size_t *length) {
  const unsigned char *next = *at, *end = *at + size;
  long count = 0;
  while (next < end) {
    unsigned long tag = number(&next);
    size_t content = 0;
    if ((tag & 7) == 2) content = number(&next);
    else if ((tag & 7) == 0) number(&next);
    else content = (tag & 7) == 1 ? 8 : 4;
    if (tag >> 3 == wanted) count++, *at = next, *length = content;
    next += content;
  }
  return count;
}
static long all_nodes[4096], count;
static long supports(void *self, const unsigned char *model, size_t size) {
  size_t length = 0;
  fields(&model, size, 7, &length); /* ModelProto.graph */
  count = fields(&model, length, 1, &length); /* GraphProto.node */
  if (getenv("STUB_LEAVES_ONE")) count--;
  for (long i = 0; i < count; i++) all_nodes[i] = i;
  return 1;
}
static long one(void) { return 1; }
OBJECT(parser, zero)
static long *subgraph(void *self, long index, long *length) { *length = count; return all_nodes; }
void *createNvOnnxParser_INTERNAL(void) {
  getInferLibVersion();
  make_parser();
  parser_table[0] = one; /* parse */
  parser_table[17] = supports; /* supportsModelV2 */
  parser_table[18] = parser_table[19] = one; /* getNbSubgraphs, isSubgraphSupported */
  parser_table[20] = subgraph; /* getSubgraphNodes */
  return parser;
}
void *createNvOnnxParserRefitter_INTERNAL(void) { return make_empty(); }
"""
)


def missing_tools() -> str | None:
    """Return why the libraries cannot be compiled here, or None."""
    for tool in ("cc", "nm", "readelf"):
        if shutil.which(tool) is None:
            return f"no {tool}"
    if importlib.util.find_spec("onnxruntime") is None:
        return "no ONNX Runtime"
    if not _provider("tensorrt").is_file():
        return "no onnxruntime-gpu"
    return None


def _provider(name: str) -> Path:
    spec = importlib.util.find_spec("onnxruntime")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "capi" / f"libonnxruntime_providers_{name}.so"


def _output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def write_cuda(folder: Path) -> None:
    functions: dict[str, set[str]] = defaultdict(set)
    for name in ("cuda", "tensorrt"):
        path = _provider(name)
        for soname in re.findall(r"NEEDED.*\[(libcu.*)\]", _output("readelf", "-d", path)):
            functions[soname].update()
        for line in _output("nm", "-D", "--undefined-only", path).splitlines():
            function, _, version = line.split()[-1].partition("@")
            if version.startswith("libcu"):
                functions[version].add(function)
            elif not version and re.match("cu[A-Z]", function):
                functions["libcuda.so.1"].add(function)
    for soname, names in functions.items():
        lines = ["#include <stdlib.h>", "#include <string.h>"]
        for name in sorted(names):
            plain = "long {name}(void) {{ return 0; }}"
            if "Alloc" in name or "Malloc" in name:
                plain = _ALLOCATE
            elif "Create" in name:
                plain = _CREATE
            lines.append(_CUDA.get(name, plain).format(name=name))
        _compile(folder / soname, "\n".join(lines), versioned=soname != "libcuda.so.1")


def write_tensorrt(folder: Path, *, version: int = TENSORRT_VERSION, parser: bool = True) -> None:
    source = _TENSORRT.replace("@PLAN@", PLAN.decode()).replace("@VERSION@", str(version))
    nvinfer = folder / "libnvinfer.so.10"
    _compile(nvinfer, source)
    _compile(folder / "libnvinfer_plugin.so.10", "int initLibNvInferPlugins(void) { return 1; }")
    _compile(folder / "libnvinfer_builder_resource.so.10.14.1", "int resource;")
    if parser:
        _compile(folder / "libnvonnxparser.so.10", _PARSER, against=nvinfer)


def _compile(
    path: Path, source: str, *, versioned: bool = False, against: Path | None = None
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    code = path.with_name(f"{path.name}.c")
    code.write_text(source)
    command = ["cc", "-w", "-shared", "-fPIC", code, "-o", path, f"-Wl,-soname,{path.name}"]
    if versioned:
        versions = path.with_name(f"{path.name}.map")
        versions.write_text(f"{path.name} {{ global: *; }};\n")
        command.append(f"-Wl,--version-script={versions}")
    if against is not None:
        command.append(against)
    _output(*command)
